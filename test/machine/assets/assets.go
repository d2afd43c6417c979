// Package assets finds what the machine lab runs on: QEMU, firmware and a kernel, unpacked from the distribution's packages
// by fetch.sh. Nothing of it is installed.
package assets

import (
	"fmt"
	"os"
	"path/filepath"
)

// Folder is where `make lab-assets` puts them, below the root of the repository.
const Folder = ".cache/lab"

// Assets is where everything is.
type Assets struct {
	root string

	Kernel  string // vmlinuz of the distribution's kernel for virtual machines
	Modules string // its folder lib/modules
	Stub    string // of images that UEFI firmware starts
	IPXE    string // folder of the programs that firmware loads from the network
}

// Open finds them below the root of the repository. Where they are missing the error says how to fetch them.
func Open(repository string) (Assets, error) {
	root := filepath.Join(repository, Folder, "root")
	a := Assets{
		root: root, IPXE: filepath.Join(root, "usr", "lib", "ipxe"),
		Stub: filepath.Join(root, "usr", "lib", "systemd", "boot", "efi", "linuxx64.efi.stub"),
	}
	if err := a.kernelOf(root); err != nil {
		return a, fmt.Errorf("%w: make lab-assets fetches what the machine lab runs on", err)
	}
	for _, name := range []string{a.QEMU(), a.TPM(), a.Stub, a.IPXE, a.UEFI(), a.UEFIVariables()} {
		if _, err := os.Stat(name); err != nil {
			return a, fmt.Errorf("%w: make lab-assets fetches it", err)
		}
	}
	return a, nil
}

// Generic is the same with the distribution's kernel for any machine, which has drivers that the one for virtual machines lacks.
func (a Assets) Generic() (Assets, error) {
	if err := a.kernelOf(filepath.Join(filepath.Dir(a.root), "generic")); err != nil {
		return a, fmt.Errorf("%w: make lab-assets-full fetches it", err)
	}
	return a, nil
}

// kernelOf finds the kernel in a folder that a kernel package was unpacked to.
func (a *Assets) kernelOf(folder string) error {
	kernels, err := filepath.Glob(filepath.Join(folder, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("there is not one kernel below %s", filepath.Join(Folder, filepath.Base(folder)))
	}
	a.Kernel, a.Modules = kernels[0], filepath.Join(folder, "lib", "modules")
	_, err = os.Stat(a.Modules)
	return err
}

// QEMU is the program.
func (a Assets) QEMU() string { return filepath.Join(a.root, "usr", "bin", "qemu-system-x86_64") }

// IPXEKernel is iPXE as a program that is started as Linux is: firmware of a kind, for machines that have none to boot from a network.
func (a Assets) IPXEKernel() string { return filepath.Join(a.root, "boot", "ipxe.lkrn") }

// Environ lets QEMU find its libraries and modules.
func (a Assets) Environ() []string {
	libraries := filepath.Join(a.root, "usr", "lib", "x86_64-linux-gnu")
	return []string{
		"LD_LIBRARY_PATH=" + libraries + ":" + filepath.Join(a.root, "lib", "x86_64-linux-gnu") + ":" + filepath.Join(libraries, "swtpm"),
		"QEMU_MODULE_DIR=" + filepath.Join(libraries, "qemu"),
	}
}

// Data is where QEMU looks for firmware.
func (a Assets) Data() []string {
	return []string{
		filepath.Join(a.root, "usr", "share", "qemu"), filepath.Join(a.root, "usr", "share", "seabios"),
		filepath.Join(a.IPXE, "qemu"),
	}
}

// TPM is the program that emulates one.
func (a Assets) TPM() string { return filepath.Join(a.root, "usr", "bin", "swtpm") }

// UEFI is the firmware's code.
func (a Assets) UEFI() string {
	return filepath.Join(a.root, "usr", "share", "OVMF", "OVMF_CODE_4M.fd")
}

// UEFIVariables is what a new machine's variables are: none.
func (a Assets) UEFIVariables() string {
	return filepath.Join(a.root, "usr", "share", "OVMF", "OVMF_VARS_4M.fd")
}
