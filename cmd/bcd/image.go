package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/bootimage"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
)

func imageCommand() *cobra.Command {
	return program.Group(&cobra.Command{
		Use:   "image",
		Short: "Make what machines boot",
		Long:  "image makes what machines boot into to be worked on. It needs no rights, and the control plane is not asked.\n" + exitStatus,
	}, buildRamdiskCommand())
}

// ramdiskConfig is what build-ramdisk is told.
type ramdiskConfig struct {
	source       bootimage.Source
	out          string
	agent        string
	names        []string
	certificates string
	blobs        string
	compress     bool
	firmware     bootimage.Firmware
}

func (c *ramdiskConfig) bind(flags *pflag.FlagSet) {
	flags.StringArrayVar(&c.source.Packages, "kernel-package", nil,
		"Debian package with a kernel and its modules; several where they are apart")
	flags.StringVar(&c.source.Kernel, "kernel", "", "file with a kernel, instead of a package")
	flags.StringVar(&c.source.Modules, "modules", "", "directory with that kernel's modules, such as /lib/modules/RELEASE")
	flags.StringVar(&c.out, "out", "", "directory for the files; it is made where it is missing")
	flags.StringVar(&c.agent, "agent", "", "the bcd of the ramdisk, linked statically (default: this program)")
	flags.StringSliceVar(&c.names, "module", nil, "modules to take instead of the usual ones; what they need comes by itself")
	flags.StringVar(&c.blobs, "firmware-dir", "", "directory with the firmware that some cards want from their drivers, such as "+
		"/lib/firmware: what the modules ask for is taken")
	flags.StringVar(&c.certificates, "ca-certificates", "", "PEM file of whom the ramdisk trusts where it fetches images over HTTPS, "+
		"or 'none' (default: whom this system trusts)")
	flags.StringVar(&c.firmware.Stub, "stub", "", "systemd's stub, such as /usr/lib/systemd/boot/efi/linuxx64.efi.stub: makes ramdisk.efi too")
	flags.BoolVar(&c.firmware.Medium, "iso", false, "make ramdisk.iso too, which UEFI machines boot from a virtual drive; needs --stub")
	flags.StringVar(&c.firmware.Arguments, "arguments", "", "the kernel's arguments in ramdisk.efi and ramdisk.iso")
	flags.BoolVar(&c.compress, "compress", false, "compress the initramfs with zstd; the kernel has to know it (5.9 and later)")
}

func (c *ramdiskConfig) check(w *program.Issues) {
	apart := c.source.Kernel != "" || c.source.Modules != ""
	switch {
	case len(c.source.Packages) == 0 && !apart:
		w.Option("kernel-package", "needed, or --kernel and --modules")
	case len(c.source.Packages) > 0 && apart:
		w.Option("kernel-package", "either this or --kernel and --modules")
	case apart && c.source.Kernel == "":
		w.Option("kernel", "needed with --modules")
	case apart && c.source.Modules == "":
		w.Option("modules", "needed with --kernel")
	}
	if c.out == "" {
		w.Option("out", "needed")
	}
	if (c.firmware.Arguments != "" || c.firmware.Medium) && c.firmware.Stub == "" {
		w.Option("stub", "needed with --arguments and --iso")
	}
}

// ramdisk reads what goes into it.
func (c *ramdiskConfig) ramdisk(w *program.Issues) bootimage.Ramdisk {
	r := bootimage.Ramdisk{Names: c.names, Compress: c.compress}
	if directory(w, "firmware-dir", c.blobs); c.blobs != "" {
		r.Firmware = os.DirFS(c.blobs)
	}
	if len(r.Names) == 0 {
		r.Names = bootimage.Modules()
	}
	name := c.agent
	var err error
	if name == "" {
		if name, err = os.Executable(); err != nil {
			w.Option("agent", "%v", err)
		}
	}
	if r.Agent, err = os.ReadFile(name); err != nil {
		w.Option("agent", "%v", err)
	}
	r.Certificates = c.trusted(w)
	return r
}

func buildRamdiskCommand() *cobra.Command {
	var c ramdiskConfig
	cmd := &cobra.Command{
		Use:   "build-ramdisk",
		Short: "Make kernel and initramfs of the ramdisk from a distribution's kernel package",
		Long: `build-ramdisk writes vmlinuz and initramfs into --out: the kernel of a distribution's package, and an archive with this program
as the first process and the modules that servers need; each is loaded where its device is. The ramdisk trusts whom this system
trusts, unless --ca-certificates says otherwise. The same inputs, those certificates too, give the same bytes. Serve the two
from the site agent's --boot-files. With --stub there is also ramdisk.efi, one image with all of it that UEFI firmware starts by
itself; with --iso too ramdisk.iso, the same for virtual drives. Beside the two others in --boot-files it lets the site's
machines boot without a network of their own to boot from: the site's agent fills in what a machine is told.

A metapackage such as linux-image-amd64 only names the package with the kernel; that one is needed.
` + exitStatus,
		Example: `  apt-get download linux-image-6.1.0-57-amd64
  bcd image build-ramdisk --kernel-package linux-image-6.1.0-57-amd64_6.1.192-3_amd64.deb --out /srv/boot
  bcd image build-ramdisk --kernel /boot/vmlinuz-6.12.9 --modules /lib/modules/6.12.9 --out /srv/boot
  bcd image build-ramdisk --kernel /boot/vmlinuz-6.12.9 --modules /lib/modules/6.12.9 --out /srv/boot \
    --stub /usr/lib/systemd/boot/efi/linuxx64.efi.stub --iso`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := &program.Issues{}
			environment.Fill(cmd, os.LookupEnv, w)
			c.check(w)
			r := c.ramdisk(w)
			if err := w.Err(); err != nil {
				return err
			}
			files, built, err := bootimage.Build(c.source, r, c.firmware, c.out)
			if err != nil {
				return known(err)
			}
			tellBuilt(cmd.OutOrStdout(), files, built, c.certificates)
			return nil
		},
	}
	c.bind(cmd.Flags())
	return environment.Describe(cmd)
}

// known gives an error of the file system a code.
func known(err error) error {
	if fault.CodeOf(err) != fault.Internal {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "%v", err)
}

func tellBuilt(w io.Writer, files []bootimage.File, built bootimage.Built, certificates string) {
	fmt.Fprintf(w, "kernel %s, %d modules: %s\n", built.Release, len(built.Modules), strings.Join(built.Modules, " "))
	if len(built.Missing) > 0 {
		fmt.Fprintf(w, "this kernel has no: %s\n", strings.Join(built.Missing, " "))
	}
	if len(built.Firmware) > 0 {
		fmt.Fprintf(w, "%d firmware files\n", len(built.Firmware))
	}
	if len(built.NoFirmware) > 0 {
		fmt.Fprintf(w, "without the firmware that cards of theirs may want (--firmware-dir): %s\n", strings.Join(built.NoFirmware, " "))
	}
	if certificates == noCertificates {
		fmt.Fprintln(w, "it trusts nobody: images come over HTTP, or not at all")
	} else {
		fmt.Fprintf(w, "images over HTTPS: from whom %s trusts\n", certificates)
	}
	for _, f := range files {
		fmt.Fprintf(w, "%s  %9d  %s\n", f.SHA256, f.Bytes, f.Path)
	}
}
