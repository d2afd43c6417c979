package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// Layout of a simulated OS: a boot sector, a sector with its name, room where its agent keeps who it is, and content. All of
// that is in the first MiB, which an image is written with last and every wipe begins with.
const (
	sectorBytes  = 512
	nameAt       = sectorBytes
	identityAt   = 4 << 10
	identityRoom = 12 << 10
	contentAt    = identityAt + identityRoom
	magic        = "simulated operating system\x00"
	mostName     = 200
)

// MinOSBytes is the smallest image.
const MinOSBytes = 64 << 10

// OSImage makes the raw image of a simulated OS, at least MinOSBytes long. The same size and name give the same bytes.
func OSImage(size int, name string) []byte {
	image := make([]byte, max(size, MinOSBytes))
	copy(image, "\xeb\x58\x90SIMBOOT ") // a jump, and who wrote it; the partition table behind it is empty
	image[510], image[511] = 0x55, 0xaa
	name = name[:min(len(name), mostName)]
	n := copy(image[nameAt:], magic)
	image[nameAt+n] = byte(len(name))
	copy(image[nameAt+n+1:], name)
	content := rand.NewChaCha8(sha256.Sum256([]byte("content of " + name)))
	_, _ = content.Read(image[contentAt:]) // it never fails
	return image
}

// osName tells which simulated OS is on a device.
func osName(d disk.Device) (string, bool) {
	b := make([]byte, 2*sectorBytes)
	if n, err := d.ReadAt(b, 0); err != nil || n < len(b) {
		return "", false
	}
	rest, found := bytes.CutPrefix(b[nameAt:], []byte(magic))
	if !found || b[510] != 0x55 || b[511] != 0xaa || int(rest[0]) > mostName {
		return "", false
	}
	return string(rest[1 : 1+int(rest[0])]), true
}

// diskOS is the OS on the disk with that key, or on the first disk that has one.
func (m *Machine) diskOS(l *life, key string) (program, bool) {
	for _, d := range m.drives {
		if key != "" && d.Info().Key() != key {
			continue
		}
		on := port{d, l.on}
		if name, ok := osName(on); ok {
			return program{running: OS, os: name, run: func(b *boot) { b.runOS(on) }}, true
		}
	}
	return program{}, false
}

// runOS is the OS: what its config drive says about an agent, it does.
func (b *boot) runOS(d port) {
	m := b.m
	m.mu.Lock()
	alone := m.faults.noRejoin
	m.mu.Unlock()
	if alone {
		m.tell(KindFault, "the agent does not start")
		<-b.ctx.Done()
		return
	}
	name, config, err := readUserData(d)
	if err != nil {
		m.tell(KindAgent, "no agent: "+err.Error())
		<-b.ctx.Done()
		return
	}
	b.runAgent(agent.Options{
		Gateway: config.Gateway, CA: config.CA, Token: config.Token, Role: agentcommand.RoleNode, State: onDisk{d}, Name: name,
	})
}

// onDisk keeps an agent's identity in the OS's own room on the disk: it goes with the OS.
type onDisk struct{ d port }

// Load reads it. A checksum tells a torn or wiped one from a whole one.
func (s onDisk) Load() (agent.Identity, bool, error) {
	b := make([]byte, identityRoom)
	if _, err := s.d.ReadAt(b, identityAt); err != nil {
		return agent.Identity{}, false, err
	}
	n := int(binary.BigEndian.Uint32(b))
	if n == 0 || n > len(b)-36 {
		return agent.Identity{}, false, nil
	}
	text := b[36 : 36+n]
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], b[4:36]) {
		return agent.Identity{}, false, nil
	}
	var id agent.Identity
	if err := json.Unmarshal(text, &id); err != nil {
		return agent.Identity{}, false, err
	}
	return id, true, nil
}

// Save writes it.
func (s onDisk) Save(id agent.Identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if len(text) > identityRoom-36 {
		return fault.New(fault.Internal, "an identity of %d bytes has no room", len(text))
	}
	sum := sha256.Sum256(text)
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	b = append(append(b, sum[:]...), text...)
	if _, err := s.d.WriteAt(b, identityAt); err != nil {
		return err
	}
	return s.d.Sync(context.Background())
}
