package blockdev

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/node"
)

// ATACommand is one command to an ATA disk.
type ATACommand struct {
	Command  uint8
	Features uint16
	Count    uint16
	LBA      uint64
	Extended bool // with the registers of 48 bits
	Write    bool // the data goes to the disk
	Timeout  time.Duration
}

// ATARegisters are what a disk answers with.
type ATARegisters struct {
	Status, Error uint8
	Count         uint16
	LBA           uint64
}

// ATATransport carries commands to one ATA disk.
type ATATransport interface {
	// Run runs a command; data is 512 bytes that it reads or writes, or nil. A command that the disk aborts is ErrATAAborted.
	Run(c ATACommand, data []byte) (ATARegisters, error)
}

// ErrATAAborted is a disk's refusal of a command.
var ErrATAAborted = errors.New("the disk aborted the command")

const (
	ataSanitize     = 0xb4
	ataIdentify     = 0xec
	ataSetPassword  = 0xf1
	ataUnlock       = 0xf2
	ataErasePrepare = 0xf3
	ataErase        = 0xf4
	ataDisable      = 0xf6

	sanitizeStatus = 0x0000
	sanitizeCrypto = 0x0011
	sanitizeBlock  = 0x0012
	cryptoKey      = 0x43727970 // "Cryp": nobody starts it by mistake
	blockKey       = 0x426b4572 // "BkEr"

	ataTimeout = time.Minute
	endless    = 24 * time.Hour      // for a disk that does not say how long it takes
	longest    = 30 * 24 * time.Hour // whatever it says: half as much again has to fit into what the kernel counts with
)

// password locks a disk for the time of its erase, as the command demands. It is no secret: it is known so that a disk whose
// erase a power cut ended can be unlocked at the next try.
const password = "bare-metal-erase"

// security is what a disk says of its security features.
type security struct {
	supported, enabled, locked, frozen, expired, enhanced bool
	takes                                                 time.Duration
}

func securityOf(identity []byte) security {
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(identity[2*n:]) }
	bits := word(128)
	s := security{
		supported: bits&1 != 0, enabled: bits&2 != 0, locked: bits&4 != 0, frozen: bits&8 != 0, expired: bits&16 != 0,
		enhanced: bits&32 != 0,
	}
	said := word(89)
	if s.enhanced {
		said = word(90)
	}
	if said&0x8000 != 0 { // the longer form
		said &= 0x7fff
	} else {
		said &= 0xff
	}
	if s.takes = min(time.Duration(said)*2*time.Minute, longest); said == 0 || said == 255 || said == 0x7fff {
		s.takes = endless
	}
	return s
}

func identify(to ATATransport) ([]byte, error) {
	data := make([]byte, 512)
	if _, err := to.Run(ATACommand{Command: ataIdentify, Count: 1, Timeout: ataTimeout}, data); err != nil {
		return nil, fmt.Errorf("identify: %w", err)
	}
	return data, nil
}

// EraseATA runs the ATA security erase, the enhanced one where there is one. A disk without it, whose firmware has frozen it,
// or that somebody else's password protects erases its blocks by a sanitize, which needs none of that; one that can't is
// disk.ErrUnsupported, and nothing was changed. It tells which it was. Whatever happens, the disk does not stay
// locked as long as it answers.
func EraseATA(ctx context.Context, to ATATransport, again time.Duration, progress disk.Progress) (by string, err error) {
	identity, err := identify(to)
	if err != nil {
		return "", err
	}
	switch s := securityOf(identity); {
	case s.supported && !s.frozen && !s.enabled:
		return node.ByATAErase, eraseATA(to, s, progress)
	case canSanitize(identity, canEraseBlocks):
		return node.ByATASanitize, sanitizeATA(ctx, to, sanitizeBlock, blockKey, again, progress)
	}
	return "", disk.ErrUnsupported
}

func eraseATA(to ATATransport, s security, progress disk.Progress) error {
	if err := withPassword(to, ataSetPassword); err != nil { // it may be set all the same
		return errors.Join(fmt.Errorf("set the password of the erase: %w", err), open(to))
	}
	progress(0, "ATA security erase")
	if err := eraseUnit(to, s); err != nil {
		return errors.Join(err, open(to))
	}
	identity, err := identify(to)
	if err != nil {
		return err
	}
	if securityOf(identity).enabled { // an erase ends with the password gone
		return errors.Join(errors.New("the disk says that it erased itself, and still has the password of the erase"), open(to))
	}
	return nil
}

func eraseUnit(to ATATransport, s security) error {
	if _, err := to.Run(ATACommand{Command: ataErasePrepare, Timeout: ataTimeout}, nil); err != nil {
		return fmt.Errorf("prepare the erase: %w", err)
	}
	data := secret()
	if s.enhanced {
		data[0] |= 2
	}
	c := ATACommand{Command: ataErase, Count: 1, Write: true, Timeout: s.takes + s.takes/2 + ataTimeout}
	if _, err := to.Run(c, data); err != nil {
		return fmt.Errorf("ATA security erase: %w", err)
	}
	return nil
}

// ResumeATA waits for a sanitize that a power cut did not end, unlocks a disk whose erase was cut short, and takes the password of the
// erase away. A disk that is not locked, or is nobody's business, stays as it is. A sanitize that failed is begun again where nothing
// can be read since.
func ResumeATA(ctx context.Context, to ATATransport, read func() error, again time.Duration) error {
	identity, err := identify(to)
	if err != nil {
		return nil //nolint:nilerr // what can't even be asked is no ATA disk, or broken: reading will tell
	}
	if err := resumeSanitizeATA(ctx, to, identity, read, again); err != nil {
		return err
	}
	return unlockATA(to, securityOf(identity))
}

func unlockATA(to ATATransport, s security) error {
	switch {
	case !s.supported || !s.enabled:
		return nil
	case !s.locked:
		if err := withPassword(to, ataDisable); err != nil && !errors.Is(err, ErrATAAborted) {
			return fmt.Errorf("take the password of the erase away: %w", err)
		}
		return nil // aborted: it is somebody else's password, and the disk is open
	case s.frozen:
		return errors.New("the disk is locked, and the firmware has frozen it: a power cycle opens the way")
	case s.expired:
		return errors.New("the disk is locked and takes no more attempts before a power cycle")
	}
	if err := open(to); errors.Is(err, ErrATAAborted) {
		return errors.New("the disk is locked with a password that is not this agent's")
	} else if err != nil {
		return err
	}
	return nil
}

// open unlocks with the password of the erase and takes it away.
func open(to ATATransport) error {
	identity, err := identify(to)
	if err != nil {
		return err
	}
	s := securityOf(identity)
	if s.locked {
		if err := withPassword(to, ataUnlock); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
	if s.enabled {
		if err := withPassword(to, ataDisable); err != nil {
			return fmt.Errorf("take the password of the erase away: %w", err)
		}
	}
	return nil
}

func withPassword(to ATATransport, command uint8) error {
	_, err := to.Run(ATACommand{Command: command, Count: 1, Write: true, Timeout: ataTimeout}, secret())
	return err
}

// secret is the block that a password travels in; the user's, not the master's.
func secret() []byte {
	data := make([]byte, 512)
	copy(data[2:34], password)
	return data
}

// CryptoEraseATA has the disk change its key (SANITIZE, CRYPTO SCRAMBLE EXT).
func CryptoEraseATA(ctx context.Context, to ATATransport, again time.Duration, progress disk.Progress) (by string, err error) {
	identity, err := identify(to)
	if err != nil {
		return "", err
	}
	if !canSanitize(identity, canScramble) {
		return "", disk.ErrUnsupported
	}
	return node.ByATASanitize, sanitizeATA(ctx, to, sanitizeCrypto, cryptoKey, again, progress)
}

// What word 59 says of SANITIZE.
const (
	canSanitizeAtAll = 1 << 12
	canScramble      = 1 << 13
	canEraseBlocks   = 1 << 15
)

func canSanitize(identity []byte, how uint16) bool {
	can := binary.LittleEndian.Uint16(identity[2*59:])
	return can&canSanitizeAtAll != 0 && can&how != 0
}

// What a disk says of its sanitize: in the register of counts, and, where it aborts the question, in the lowest byte of the address.
const (
	sanitizeCompleted = 1 << 15
	sanitizeRunning   = 1 << 14
	sanitizeFailed    = 1
)

func askSanitize(to ATATransport, features uint16, lba uint64) (ATARegisters, error) {
	r, err := to.Run(ATACommand{Command: ataSanitize, Features: features, LBA: lba, Extended: true, Timeout: ataTimeout}, nil)
	if err != nil {
		return r, fmt.Errorf("ATA sanitize: %w", err)
	}
	return r, nil
}

// resumeSanitizeATA waits for one that runs: until its end the disk answers nothing else. What can't be asked is left as it is:
// reading will tell.
func resumeSanitizeATA(ctx context.Context, to ATATransport, identity []byte, read func() error, again time.Duration) error {
	how, key := uint16(sanitizeBlock), uint64(blockKey)
	if !canSanitize(identity, canEraseBlocks) {
		how, key = sanitizeCrypto, cryptoKey
	}
	if !canSanitize(identity, canEraseBlocks|canScramble) {
		return nil
	}
	for {
		state, err := askSanitize(to, sanitizeStatus, 0)
		if errors.Is(err, ErrATAAborted) && state.LBA&0xff == sanitizeFailed && read() != nil {
			return sanitizeATA(ctx, to, how, key, again, func(float64, string) {})
		}
		if running := err == nil && state.Count&sanitizeRunning != 0; !running {
			return nil
		}
		if err := wait(ctx, again); err != nil {
			return err
		}
	}
}

// sanitizeATA starts a sanitize and waits for its end. A disk that does not begin, because that was frozen for instance, is
// disk.ErrUnsupported.
func sanitizeATA(ctx context.Context, to ATATransport, how uint16, key uint64, again time.Duration, progress disk.Progress) error {
	if _, err := askSanitize(to, how, key); errors.Is(err, ErrATAAborted) {
		return fmt.Errorf("%w: %w", disk.ErrUnsupported, err)
	} else if err != nil {
		return err
	}
	for {
		state, err := askSanitize(to, sanitizeStatus, 0)
		if err != nil {
			return err
		}
		switch {
		case state.Count&sanitizeRunning != 0:
			progress(100*float64(state.LBA&0xffff)/65536, "ATA sanitize")
		case state.Count&sanitizeCompleted != 0:
			return nil
		default:
			return errors.New("the disk's sanitize did not complete")
		}
		if err := wait(ctx, again); err != nil {
			return err
		}
	}
}
