package blockdev

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nvmeFile carries admin commands through the block device of a namespace.
type nvmeFile struct{ file *os.File }

const (
	nvmeIoctlID    = 0x4e40
	nvmeIoctlAdmin = 0xc0484e41
)

// nvmeAdminCommand is the kernel's struct nvme_admin_cmd.
type nvmeAdminCommand struct {
	opcode, flags           uint8
	_                       uint16
	namespace               uint32
	cdw2, cdw3              uint32
	metadata, address       uint64
	metadataBytes, bytes    uint32
	cdw10, cdw11            uint32
	cdw12, cdw13            uint32
	cdw14, cdw15            uint32
	timeoutMillis, returned uint32
}

// Namespace asks the kernel.
func (n nvmeFile) Namespace() (uint32, error) {
	id, err := ioctl(n.file, nvmeIoctlID, nil)
	return uint32(id), err
}

// Admin runs a command and waits for it.
func (n nvmeFile) Admin(c AdminCommand, data []byte) error {
	command := nvmeAdminCommand{
		opcode: c.Opcode, namespace: c.Namespace, cdw10: c.CDW10, cdw11: c.CDW11, timeoutMillis: uint32(c.Timeout.Milliseconds()),
	}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	if len(data) > 0 {
		pinned.Pin(&data[0])
		command.address, command.bytes = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data)) //nolint:gosec // pinned
	}
	status, err := ioctl(n.file, nvmeIoctlAdmin, unsafe.Pointer(&command)) //nolint:gosec // as the kernel wants it
	if err != nil {
		return unsupported(err)
	}
	if status != 0 {
		return NVMeStatus(status)
	}
	return nil
}

// sgFile carries ATA commands through the kernel's SCSI layer (ATA PASS-THROUGH).
type sgFile struct{ file *os.File }

const (
	sgIO       = 0x2285
	sgNone     = -1
	sgToDevice = -2
	sgFromDisk = -3

	senseBytes = 64
)

// sgHeader is the kernel's struct sg_io_hdr.
type sgHeader struct {
	interfaceID     int32
	direction       int32
	commandBytes    uint8
	senseMost       uint8
	scattered       uint16
	dataBytes       uint32
	data            uint64
	command         uint64
	sense           uint64
	timeoutMillis   uint32
	flags           uint32
	packID          int32
	_               int32
	userPointer     uint64
	status          uint8
	maskedStatus    uint8
	messageStatus   uint8
	senseWritten    uint8
	hostStatus      uint16
	driverStatus    uint16
	residual        int32
	durationMillis  uint32
	info, unusedEnd uint32
}

// passThrough writes a command as SCSI carries it.
func passThrough(c ATACommand, data bool) [16]byte {
	const (
		protocolNone, protocolIn, protocolOut = 3, 4, 5
		fromDisk, blocks, inCount, tell       = 1 << 3, 1 << 2, 2, 1 << 5
	)
	protocol, flags := byte(protocolNone), byte(tell)
	switch {
	case data && c.Write:
		protocol, flags = protocolOut, blocks|inCount
	case data:
		protocol, flags = protocolIn, fromDisk|blocks|inCount
	}
	var extended byte
	if c.Extended {
		extended = 1
	}
	return [16]byte{
		0x85, protocol<<1 | extended, flags, byte(c.Features >> 8), byte(c.Features), byte(c.Count >> 8), byte(c.Count),
		byte(c.LBA >> 24), byte(c.LBA), byte(c.LBA >> 32), byte(c.LBA >> 8), byte(c.LBA >> 40), byte(c.LBA >> 16), 0x40, c.Command, 0,
	}
}

// Run runs a command and waits for it.
func (s sgFile) Run(c ATACommand, data []byte) (ATARegisters, error) {
	command, sense := passThrough(c, len(data) > 0), [senseBytes]byte{}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&command)
	pinned.Pin(&sense)
	h := sgHeader{
		interfaceID: 'S', direction: sgNone, commandBytes: uint8(len(command)), senseMost: senseBytes,
		command: uint64(uintptr(unsafe.Pointer(&command))), //nolint:gosec // pinned
		sense:   uint64(uintptr(unsafe.Pointer(&sense))),   //nolint:gosec // pinned
		// The kernel counts in milliseconds, of which 32 bits hold 49 days.
		timeoutMillis: uint32(c.Timeout.Milliseconds()),
	}
	if len(data) > 0 {
		pinned.Pin(&data[0])
		h.data, h.dataBytes = uint64(uintptr(unsafe.Pointer(&data[0]))), uint32(len(data)) //nolint:gosec // pinned
		if h.direction = sgFromDisk; c.Write {
			h.direction = sgToDevice
		}
	}
	if _, err := ioctl(s.file, sgIO, unsafe.Pointer(&h)); err != nil { //nolint:gosec // as the kernel wants it
		return ATARegisters{}, unsupported(err)
	}
	if h.hostStatus != 0 {
		return ATARegisters{}, fmt.Errorf("the disk's controller answers %#x: %w", h.hostStatus, unix.EIO)
	}
	registers, told := registersOf(sense[:min(int(h.senseWritten), senseBytes)])
	return registers, verdict(registers, told, h.status, sense[:])
}

// registersOf reads the registers that the disk ended with from what comes with an answer.
func registersOf(sense []byte) (ATARegisters, bool) {
	const head, descriptor = 8, 14
	if len(sense) >= descriptor && sense[0]&0x7f == 0x70 && sense[12] == 0 && sense[13] == 0x1d { // of some controllers for SAS
		return ATARegisters{
			Error: sense[3], Status: sense[4], Count: uint16(sense[6]), LBA: uint64(sense[9]) | uint64(sense[10])<<8 | uint64(sense[11])<<16,
		}, true
	}
	if len(sense) < head+descriptor || sense[0]&0x7f != 0x72 || sense[head] != 0x09 {
		return ATARegisters{}, false
	}
	d := sense[head:]
	return ATARegisters{
		Error: d[3], Status: d[13], Count: uint16(d[4])<<8 | uint16(d[5]),
		LBA: uint64(d[7]) | uint64(d[9])<<8 | uint64(d[11])<<16 | uint64(d[6])<<24 | uint64(d[8])<<32 | uint64(d[10])<<40,
	}, true
}

// verdict says whether a command went well. With registers it is the disk that says so.
func verdict(r ATARegisters, told bool, status uint8, sense []byte) error {
	const failed, fault, aborted, checkCondition = 1, 1 << 5, 1 << 2, 2
	switch {
	case told && r.Status&(failed|fault) == 0:
		return nil
	case told && r.Error&aborted != 0:
		return ErrATAAborted
	case told:
		return fmt.Errorf("the disk answers status %#x, error %#x", r.Status, r.Error)
	case status == 0:
		return nil
	case status == checkCondition && sense[1]&0xf == 0x0b, status == checkCondition && sense[0]&0x7f == 0x70 && sense[2]&0xf == 0x0b:
		return ErrATAAborted
	}
	return fmt.Errorf("the disk's controller answers SCSI status %#x, sense key %#x", status, sense[1]&0xf)
}
