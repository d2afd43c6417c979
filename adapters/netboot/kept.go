package netboot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/better-compute/metal/adapters/statefile"
	"github.com/better-compute/metal/domain/fault"
)

// keptEntry is an entry as the file has it. It holds a join token: the file is its owner's alone.
type keptEntry struct {
	Entry
	Ref string `json:"ref"`
}

// OpenEntries is NewEntries over a file, so that machines which are on their way to boot find their entries also after the
// site agent was started anew. A file that can't be read or written is INVALID_CONFIG; a crash leaves the old one or the new
// one.
func OpenEntries(file string, now func() time.Time) (*Entries, error) {
	e := NewEntries(now)
	e.file = file
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the boot entries can't be read: %v", err)
	}
	var kept []keptEntry
	if len(text) > 0 && json.Unmarshal(text, &kept) != nil {
		return nil, fault.New(fault.InvalidConfig, "%s holds no boot entries", file).WithRemedy("take the file away: the entries are set again")
	}
	for _, k := range kept {
		if macs, issues := checked(k.Entry); len(issues) == 0 && k.Ref != "" && now().Before(k.ExpiresAt) {
			k.MACs = macs
			e.add(&held{Entry: k.Entry, ref: k.Ref})
		}
	}
	return e, e.save()
}

// save writes the live entries. It is called with the lock held.
func (e *Entries) save() error {
	if e.file == "" {
		return nil
	}
	kept := []keptEntry{}
	for _, h := range e.byNode {
		if e.now().Before(h.ExpiresAt) {
			kept = append(kept, keptEntry{Entry: h.Entry, Ref: h.ref})
		}
	}
	text, err := json.Marshal(kept)
	if err == nil {
		err = statefile.Replace(e.file, text)
	}
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the boot entries can't be kept: %v", err)
	}
	return nil
}
