package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/machine/osimage"
)

// whole is a disk that is only read.
type whole struct {
	disk.Device // what it does beside reading is never asked for
	file        *os.File
	bytes       int64
}

func (w whole) Info() disk.Info {
	return disk.Info{Disk: node.Disk{Bytes: w.bytes}}
}
func (w whole) ReadAt(p []byte, at int64) (int, error) { return w.file.ReadAt(p, at) }

// findDisks gives the disk that this OS was installed on, and its own partition there.
func findDisks(context.Context) (root whole, own *os.File, err error) {
	err = await("the disks", func() error {
		entries, err := filepath.Glob("/sys/class/block/*/uevent")
		if err != nil {
			return err
		}
		for _, entry := range entries {
			text, err := os.ReadFile(entry)
			if err != nil || !strings.Contains(string(text), "PARTNAME="+osimage.StateName+"\n") {
				continue
			}
			name := filepath.Base(filepath.Dir(entry))
			above, err := filepath.EvalSymlinks(filepath.Dir(entry))
			if err != nil {
				return err
			}
			if own, err = os.OpenFile("/dev/"+name, os.O_RDWR|os.O_SYNC, 0); err != nil {
				return err
			}
			root, err = openWhole(filepath.Base(filepath.Dir(above)))
			return err
		}
		return errNoDisk
	})
	return root, own, err
}

func openWhole(name string) (w whole, err error) {
	if w.file, err = os.Open("/dev/" + name); err != nil {
		return w, err
	}
	w.bytes, err = w.file.Seek(0, 2)
	return w, err
}

// state is the OS's own partition: a line about each boot, and who its agent is.
type state struct{ file *os.File }

const (
	bootsBytes   = 512
	identityAt   = 4 << 10
	identityRoom = 64 << 10
)

// openState notes one boot more.
func openState(own *os.File) (state, error) {
	b := make([]byte, bootsBytes)
	if _, err := own.ReadAt(b, 0); err != nil {
		return state{}, err
	}
	boots := 0
	_, _ = fmt.Sscanf(string(b), "labos booted %d times\n", &boots) // at the first boot there is nothing
	clear(b)
	copy(b, fmt.Sprintf("labos booted %d times\n", boots+1))
	_, err := own.WriteAt(b, 0)
	return state{own}, err
}

// Load reads who the agent is.
func (s state) Load() (agent.Identity, bool, error) {
	var id agent.Identity
	b := make([]byte, identityRoom)
	if _, err := s.file.ReadAt(b, identityAt); err != nil {
		return id, false, err
	}
	n := int(binary.BigEndian.Uint32(b))
	if n == 0 || n > len(b)-36 {
		return id, false, nil
	}
	text := b[36 : 36+n]
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], b[4:36]) {
		return id, false, nil
	}
	err := json.Unmarshal(text, &id)
	return id, err == nil, err
}

// Save writes it.
func (s state) Save(id agent.Identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	b := make([]byte, identityRoom)
	if len(text) > len(b)-36 {
		return fmt.Errorf("an identity of %d bytes has no room", len(text))
	}
	binary.BigEndian.PutUint32(b, uint32(len(text)))
	sum := sha256.Sum256(text)
	copy(b[4:], sum[:])
	copy(b[36:], text)
	_, err = s.file.WriteAt(b, identityAt)
	return err
}
