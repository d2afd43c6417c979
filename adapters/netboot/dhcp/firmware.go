package dhcp

import (
	"slices"
	"strconv"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Platform is what a machine's firmware runs, as far as a boot loader is concerned.
type Platform string

// The platforms that are served.
const (
	BIOS  Platform = "bios"
	X8664 Platform = "uefi-x86-64"
	ARM64 Platform = "uefi-arm64"
)

// Loader is how firmware fetches the next program.
type Loader string

// The loaders.
const (
	PXE  Loader = "pxe"  // a program by TFTP
	HTTP Loader = "http" // a program by HTTP: UEFI HTTP boot
	IPXE Loader = "ipxe" // a script by HTTP
)

// Firmware is what asks to boot from the network.
type Firmware struct {
	Platform Platform
	Loader   Loader
}

// architectures are the values of option 93 that are served. 7 and 9 are both in use for UEFI on x86-64, whatever the RFC
// meant by them.
var architectures = map[iana.Arch]Firmware{
	iana.INTEL_X86PC:     {BIOS, PXE},
	iana.EFI_X86_64:      {X8664, PXE},
	iana.EFI_BC:          {X8664, PXE},
	iana.EFI_ARM64:       {ARM64, PXE},
	iana.EFI_X86_64_HTTP: {X8664, HTTP},
	iana.EFI_BC_HTTP:     {X8664, HTTP},
	iana.EFI_ARM64_HTTP:  {ARM64, HTTP},
}

// The beginnings of option 60: whoever sends neither does not boot.
const (
	classPXE  = "PXEClient"
	classHTTP = "HTTPClient"
)

// FirmwareOf reads what asks. It is not ok if the packet is no request to boot, or one of a platform that is not served.
func FirmwareOf(req *dhcpv4.DHCPv4) (Firmware, bool) {
	class := req.ClassIdentifier()
	if !strings.HasPrefix(class, classPXE) && !strings.HasPrefix(class, classHTTP) {
		return Firmware{}, false
	}
	for _, arch := range architecturesOf(req, class) {
		firmware, ok := architectures[arch]
		switch {
		case !ok:
			continue
		case isIPXE(req):
			firmware.Loader = IPXE
		case (firmware.Loader == HTTP) != strings.HasPrefix(class, classHTTP):
			continue // it contradicts itself
		}
		return firmware, true
	}
	return Firmware{}, false
}

// architecturesOf reads option 93, or what option 60 says of it: PXEClient:Arch:00007:UNDI:003016.
func architecturesOf(req *dhcpv4.DHCPv4, class string) []iana.Arch {
	if archs := req.ClientArch(); len(archs) > 0 {
		return archs
	}
	words := strings.Split(class, ":")
	if len(words) < 3 || words[1] != "Arch" {
		return nil
	}
	n, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return nil
	}
	return []iana.Arch{iana.Arch(n)}
}

// isIPXE tells whether iPXE asks. It writes its user class without the length that RFC 3004 puts before it.
func isIPXE(req *dhcpv4.DHCPv4) bool {
	raw := req.Options.Get(dhcpv4.OptionUserClassInformation)
	return string(raw) == "iPXE" || slices.Contains(req.UserClass(), "iPXE")
}
