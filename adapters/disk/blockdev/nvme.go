package blockdev

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/node"
)

// AdminCommand is one command to an NVMe controller.
type AdminCommand struct {
	Opcode    uint8
	Namespace uint32
	CDW10     uint32
	CDW11     uint32
	Timeout   time.Duration
}

// AdminTransport carries commands to the controller of one NVMe namespace.
type AdminTransport interface {
	// Namespace is the number of the namespace.
	Namespace() (uint32, error)
	// Admin runs a command; data is what it reads into. The controller's own verdict is an NVMeStatus.
	Admin(c AdminCommand, data []byte) error
}

// NVMeStatus is why a controller refused a command: status code type and status code.
type NVMeStatus uint16

// Error says it in numbers, as the specification lists them.
func (s NVMeStatus) Error() string {
	return fmt.Sprintf("the NVMe controller answers status %#x of type %d", uint16(s)&0xff, uint16(s)>>8&7)
}

// refusals are verdicts of a controller that it can't do this at all: bad opcode, bad field, bad format.
func (s NVMeStatus) unsupported() bool {
	return s&0x7ff == 0x001 || s&0x7ff == 0x002 || s&0x7ff == 0x10a
}

const (
	opGetLogPage = 0x02
	opIdentify   = 0x06
	opFormat     = 0x80
	opSanitize   = 0x84

	cnsNamespace  = 0
	cnsController = 1
	cnsActive     = 0x02
	cnsAllocated  = 0x10 // also those that other controllers have

	logSanitize = 0x81

	identifyBytes = 4096
	adminTimeout  = time.Minute
	formatTimeout = 4 * time.Hour
)

// nvme erases one namespace.
type nvme struct {
	to       AdminTransport
	id       uint32
	progress disk.Progress
	again    time.Duration // between looks at a sanitize that runs

	controller, namespace []byte
}

// EraseNVMe erases all user data of a namespace by the controller's own means, or throws its key away. Where the controller
// can't do what is asked, or would do it to other namespaces too, that is disk.ErrUnsupported, and nothing was changed. It tells
// which it was.
func EraseNVMe(
	ctx context.Context, to AdminTransport, crypto bool, again time.Duration, progress disk.Progress,
) (by string, err error) {
	n, err := openNVMe(to, again, progress)
	if err != nil {
		return "", err
	}
	alone, err := n.alone()
	if err != nil {
		return "", err
	}
	if n.canFormat(crypto, alone) {
		err := n.format(crypto)
		var status NVMeStatus
		if err == nil || !errors.As(err, &status) || !status.unsupported() {
			return node.ByNVMeFormat, err
		}
	}
	if action := n.sanitizeAction(crypto); action != 0 && alone {
		return node.ByNVMeSanitize, n.sanitize(ctx, action)
	}
	return "", disk.ErrUnsupported
}

// ResumeNVMe waits for a sanitize that a power cut did not end: until it is done, nothing can be read or written. One that failed
// is begun again where nothing can be read since; where reading works, that was long ago, or another tool has seen to it.
func ResumeNVMe(ctx context.Context, to AdminTransport, read func() error, again time.Duration) error {
	n, err := openNVMe(to, again, func(float64, string) {})
	if err != nil {
		return err
	}
	action := cmp.Or(n.sanitizeAction(false), n.sanitizeAction(true))
	if action == 0 {
		return nil
	}
	err = n.awaitSanitize(ctx)
	if !errors.Is(err, errSanitizeFailed) {
		return err
	}
	if read() == nil {
		return nil
	}
	if alone, err := n.alone(); err != nil || !alone {
		return errors.Join(errSanitizeFailed, err)
	}
	return n.sanitize(ctx, action)
}

func openNVMe(to AdminTransport, again time.Duration, progress disk.Progress) (*nvme, error) {
	n := &nvme{to: to, progress: progress, again: again}
	var err error
	if n.id, err = to.Namespace(); err != nil {
		return nil, fmt.Errorf("number of the namespace: %w", err)
	}
	if n.controller, err = n.identify(cnsController, 0); err != nil {
		return nil, err
	}
	if n.namespace, err = n.identify(cnsNamespace, n.id); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *nvme) identify(what, namespace uint32) ([]byte, error) {
	data := make([]byte, identifyBytes)
	err := n.to.Admin(AdminCommand{Opcode: opIdentify, Namespace: namespace, CDW10: what, Timeout: adminTimeout}, data)
	if err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	return data, nil
}

// alone tells whether there is no other namespace than this one: neither of this controller, nor, where namespaces can be
// given to controllers, of another one, which may be another machine's.
func (n *nvme) alone() (bool, error) {
	lists := []uint32{cnsActive}
	if n.managesNamespaces() {
		lists = append(lists, cnsAllocated)
	}
	for _, which := range lists {
		found, err := n.list(which)
		if err != nil || !slices.Equal(found, []uint32{n.id}) {
			return false, err
		}
	}
	return true, nil
}

// list reads a list of namespaces.
func (n *nvme) list(which uint32) (ids []uint32, err error) {
	data, err := n.identify(which, 0)
	for ; err == nil && len(data) >= 4 && binary.LittleEndian.Uint32(data) != 0; data = data[4:] {
		ids = append(ids, binary.LittleEndian.Uint32(data))
	}
	return ids, err
}

// managesNamespaces tells whether namespaces can be made, and given to controllers.
func (n *nvme) managesNamespaces() bool { return n.optional()&(1<<3) != 0 }

// optional are the optional commands that the controller has.
func (n *nvme) optional() uint16 { return binary.LittleEndian.Uint16(n.controller[256:]) }

// canFormat reads what the controller says: a format is an optional command, a crypto erase an option of it, and some
// controllers can format or erase all namespaces only.
func (n *nvme) canFormat(crypto, alone bool) bool {
	const formats = 1 << 1
	attributes := n.controller[524]
	all := attributes&0b11 != 0
	return n.optional()&formats != 0 && (!crypto || attributes&4 != 0) && (alone || !all)
}

// format erases with the format that the namespace has.
func (n *nvme) format(crypto bool) error {
	layout, protection := uint32(n.namespace[26]), uint32(n.namespace[29])
	ask := layout&0xf | layout>>5&3<<12 | layout>>4&1<<4 | protection&7<<5 | protection>>3&1<<8
	if crypto {
		ask |= 2 << 9
	} else {
		ask |= 1 << 9
	}
	n.progress(0, "NVMe format")
	if err := n.to.Admin(AdminCommand{Opcode: opFormat, Namespace: n.id, CDW10: ask, Timeout: formatTimeout}, nil); err != nil {
		return fmt.Errorf("NVMe format: %w", err)
	}
	return nil
}

// sanitizeAction is the kind of sanitize that does what is asked; zero: there is none.
func (n *nvme) sanitizeAction(crypto bool) uint32 {
	can := binary.LittleEndian.Uint32(n.controller[328:])
	switch {
	case crypto && can&1 != 0:
		return 4
	case !crypto && can&2 != 0:
		return 2
	}
	return 0
}

func (n *nvme) sanitize(ctx context.Context, action uint32) error {
	if err := n.to.Admin(AdminCommand{Opcode: opSanitize, CDW10: action, Timeout: adminTimeout}, nil); err != nil {
		return fmt.Errorf("NVMe sanitize: %w", err)
	}
	return n.awaitSanitize(ctx)
}

func (n *nvme) awaitSanitize(ctx context.Context) error {
	for {
		percent, running, err := n.sanitized()
		if err != nil || !running {
			return err
		}
		n.progress(percent, "NVMe sanitize")
		if err := wait(ctx, n.again); err != nil {
			return err
		}
	}
}

// sanitized looks at the latest sanitize. One that failed is an error.
func (n *nvme) sanitized() (percent float64, running bool, err error) {
	data := make([]byte, 512)
	err = n.to.Admin(AdminCommand{
		Opcode: opGetLogPage, Namespace: 0xffffffff, CDW10: logSanitize | uint32(len(data)/4-1)<<16, Timeout: adminTimeout,
	}, data)
	if err != nil {
		return 0, false, fmt.Errorf("state of the sanitize: %w", err)
	}
	switch binary.LittleEndian.Uint16(data[2:]) & 7 {
	case 2:
		return 100 * float64(binary.LittleEndian.Uint16(data)) / 65536, true, nil
	case 3:
		return 0, false, errSanitizeFailed
	}
	return 100, false, nil
}

var errSanitizeFailed = errors.New("the latest NVMe sanitize failed")

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
