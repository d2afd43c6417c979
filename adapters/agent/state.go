package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/better-compute/metal/adapters/statefile"
)

// MemoryState keeps an identity as long as the process lives, as a ramdisk does.
func MemoryState() State { return &memoryState{} }

type memoryState struct {
	mu       sync.Mutex
	identity Identity
}

func (s *memoryState) Load() (Identity, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity, s.identity.AgentID != "", nil
}

func (s *memoryState) Save(i Identity) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = i
	return nil
}

// FileState keeps an identity in a directory, readable by its owner only. A crash leaves the old one or the new one.
func FileState(directory string) State { return fileState(filepath.Join(directory, "identity.json")) }

type fileState string

func (s fileState) Load() (i Identity, ok bool, err error) {
	text, err := os.ReadFile(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("read the agent's state: %w", err)
	}
	if err := json.Unmarshal(text, &i); err != nil {
		return Identity{}, false, fmt.Errorf("%s holds no identity of an agent; take it away to join anew", string(s))
	}
	return i, i.AgentID != "", nil
}

func (s fileState) Save(i Identity) error {
	text, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	if err := statefile.Replace(string(s), text); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	return nil
}
