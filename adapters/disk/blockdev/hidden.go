package blockdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	ataNativeMax  = 0x27 // READ NATIVE MAX ADDRESS EXT, of the host protected area (ATA8-ACS)
	ataConfigured = 0xb1 // DEVICE CONFIGURATION (ATA8-ACS)
	ataAccessible = 0x78 // ACCESSIBLE MAX ADDRESS CONFIGURATION (ACS-3), which took their place

	configuredIdentify = 0xc2

	cnsControllersOf = 0x12 // that a namespace is attached to
)

// HiddenATA tells what of an ATA disk nobody reaches, and no wipe: sectors that somebody set apart, as whoever runs an OS on the
// machine can. Empty: nothing, or the disk does not tell. A disk whose firmware froze that before the OS ran does not tell, and can't
// have been changed by it.
func HiddenATA(to ATATransport) (string, error) {
	identity, err := identify(to)
	if err != nil {
		return "", nil //nolint:nilerr // what can't even be asked is no ATA disk, or broken: reading will tell
	}
	le := binary.LittleEndian
	const by48bits = 1 << 10
	reached := le.Uint64(identity[2*100:]) // sectors
	if le.Uint16(identity[2*83:])&by48bits == 0 || reached == 0 {
		return "", nil // a disk of the last century
	}
	native, err := nativeSectors(to, identity)
	if err != nil {
		return "", err
	}
	if native <= reached {
		return "", nil
	}
	return fmt.Sprintf("%d sectors at its end are set apart (host protected area, or device configuration overlay), and nobody reaches "+
		"them: make the disk as large as it is, such as by hdparm -N and --dco-restore, and retry", native-reached), nil
}

// nativeSectors is how many sectors a disk has by the ways that it has to tell.
func nativeSectors(to ATATransport, identity []byte) (most uint64, err error) {
	le := binary.LittleEndian
	hasArea := le.Uint16(identity[2*82:])&(1<<10) != 0
	hasOverlay := le.Uint16(identity[2*83:])&(1<<11) != 0
	ask := func(c ATACommand) {
		c.Extended, c.Timeout = true, ataTimeout
		r, e := to.Run(c, nil)
		switch {
		case e == nil:
			most = max(most, r.LBA+1)
		case hasArea && !errors.Is(e, ErrATAAborted): // what it says it has it should tell
			err = errors.Join(err, fmt.Errorf("ask how large the disk is: %w", e))
		}
	}
	if hasArea {
		ask(ATACommand{Command: ataNativeMax})
	} else {
		ask(ATACommand{Command: ataAccessible})
	}
	if hasOverlay {
		data := make([]byte, 512)
		_, e := to.Run(ATACommand{Command: ataConfigured, Features: configuredIdentify, Count: 1, Timeout: ataTimeout}, data)
		switch {
		case e == nil:
			most = max(most, le.Uint64(data[2*3:])+1)
		case !errors.Is(e, ErrATAAborted):
			err = errors.Join(err, fmt.Errorf("ask how the disk is configured: %w", e))
		}
	}
	return most, err
}

// HiddenNVMe tells what of the controller of a namespace nobody reaches, and no wipe: namespaces that are attached to no controller,
// which whoever runs an OS on the machine can bring about. One that another controller has may be another machine's. Empty: nothing.
func HiddenNVMe(to AdminTransport) (string, error) {
	n, err := openNVMe(to, 0, func(float64, string) {})
	if err != nil {
		return "", err
	}
	if !n.managesNamespaces() {
		return "", nil
	}
	here, err := n.list(cnsActive)
	if err != nil {
		return "", err
	}
	allocated, err := n.list(cnsAllocated)
	if err != nil {
		return "", err
	}
	var detached []uint32
	for _, id := range allocated {
		if slices.Contains(here, id) {
			continue
		}
		controllers, err := n.identify(cnsControllersOf, id)
		if err != nil {
			return "", err
		}
		if count := binary.LittleEndian.Uint16(controllers); count == 0 {
			detached = append(detached, id)
		}
	}
	if len(detached) == 0 {
		return "", nil
	}
	return fmt.Sprintf("namespaces %v of its controller are attached to none, and nobody reaches them: attach or delete them, such as by "+
		"nvme attach-ns or delete-ns, and retry", detached), nil
}
