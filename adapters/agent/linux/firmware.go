package linux

import (
	"io/fs"
	"strings"

	"github.com/better-compute/metal/domain/node"
)

// secureBootVariable is where UEFI firmware tells whether it let only signed programs start: four bytes of attributes, then
// one byte.
const secureBootVariable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// firmware is what the firmware says of itself, and how it started this system. Only a PC has firmware of the old kind.
func (m *Machine) firmware() *node.Firmware {
	out := node.Firmware{Vendor: m.dmi("bios_vendor"), Version: m.dmi("bios_version"), Date: m.dmi("bios_date")}
	switch {
	case m.exists("sys/firmware/efi"):
		out.BootMode, out.SecureBoot = node.BootUEFI, m.secureBoot()
	case m.exists("sys/firmware") && m.architecture() == pc:
		out.BootMode = node.BootBIOS
	}
	if out == (node.Firmware{}) {
		return nil
	}
	return &out
}

// secureBoot is known where the firmware's variables can be read.
func (m *Machine) secureBoot() *bool {
	value, err := fs.ReadFile(m.root, secureBootVariable)
	if err != nil || len(value) != 5 || value[4] > 1 {
		return nil
	}
	on := value[4] == 1
	return &on
}

// tpm is the module that a driver was found for.
func (m *Machine) tpm() *node.TPM {
	for _, name := range m.names("sys/class/tpm") {
		if !strings.HasPrefix(name, "tpm") || strings.HasPrefix(name, "tpmrm") {
			continue
		}
		switch m.text("sys/class/tpm/" + name + "/tpm_version_major") {
		case "1":
			return &node.TPM{Version: "1.2"}
		case "2":
			return &node.TPM{Version: "2.0"}
		}
		return &node.TPM{}
	}
	return nil
}
