package netboot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
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

// keptEntries is what the file has.
type keptEntries struct {
	Term    int64                `json:"term"` // of the boot lease
	Entries []keptEntry          `json:"entries"`
	Spent   map[string]time.Time `json:"spent,omitempty"`
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
	var kept keptEntries
	if len(text) > 0 && json.Unmarshal(text, &kept) != nil {
		return nil, fault.New(fault.InvalidConfig, "%s holds no boot entries", file).WithRemedy("take the file away: the entries are set again")
	}
	e.term = kept.Term
	for ref, until := range kept.Spent {
		e.spent[ref] = until
	}
	for _, k := range kept.Entries {
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
	kept := keptEntries{Term: e.term, Entries: []keptEntry{}, Spent: e.spent}
	now := e.now()
	for _, h := range e.byNode {
		if now.Before(h.ExpiresAt) {
			kept.Entries = append(kept.Entries, keptEntry{Entry: h.Entry, Ref: h.ref})
		}
	}
	maps.DeleteFunc(e.spent, func(_ string, until time.Time) bool { return !now.Before(until) })
	text, err := json.Marshal(kept)
	if err == nil {
		err = statefile.Replace(e.file, text)
	}
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the boot entries can't be kept: %v", err)
	}
	return nil
}
