// Package netboot serves what a machine needs to boot from the network over HTTP: its iPXE script, the hand-over of its join
// token, kernels and ramdisks. Below it are dhcp, tftp, the cache of images, and the limits on all of them.
//
// A machine without an entry gets a script that goes on to its next boot device: an unknown machine is never touched.
package netboot

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// Entry is what one machine boots.
type Entry struct {
	NodeID         string
	MACs           []string
	Kernel, Initrd string // URLs, or names below the server's own files
	Args           []string
	Token          string // the join token: it leaves once, and only by TakeToken
	ExpiresAt      time.Time
}

// Entries are the entries of a site, in memory, or in a file as well (OpenEntries). Safe for concurrent use.
type Entries struct {
	now  func() time.Time
	file string // empty: none

	mu       sync.Mutex
	byNode   map[string]*held
	byMAC    map[string]*held
	byRef    map[string]*held
	byMedium map[string]*held
	term     int64                // of the boot lease under which the entries were set
	spent    map[string]time.Time // references whose tokens were fetched, and until when the same could be set again
}

type held struct {
	Entry
	ref string // stands for the token on the kernel's command line
}

// NewEntries makes an empty set; now is the clock.
func NewEntries(now func() time.Time) *Entries {
	return &Entries{
		now: now, byNode: map[string]*held{}, byMAC: map[string]*held{}, byRef: map[string]*held{}, byMedium: map[string]*held{},
		spent: map[string]time.Time{},
	}
}

// refOf is what stands for an entry's token. Each of a site's boot servers that is given the entry has the same, so that a machine
// that has begun to boot from one gets its token from another.
func refOf(entry Entry) string {
	until := entry.ExpiresAt.UTC().Format(time.RFC3339Nano)
	sum := sha256.Sum256([]byte("boot reference\n" + entry.NodeID + "\n" + entry.Token + "\n" + until))
	return base32.StdEncoding.EncodeToString(sum[:])[:refLength]
}

const refLength = 26

// Begin begins a term of the boot lease. In another one than before, every entry is gone: others served meanwhile, and what is
// still good is set again.
func (e *Entries) Begin(term int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if term == e.term {
		return nil
	}
	before := e.term
	kept := slices.Collect(maps.Values(e.byNode))
	for _, h := range kept {
		e.drop(h)
	}
	e.term = term
	if err := e.save(); err != nil {
		e.term = before
		for _, h := range kept {
			e.add(h)
		}
		return err
	}
	return nil
}

// Set replaces the machine's entry. A MAC that was another machine's is this one's from now on. Where the entry can't be kept
// there is none: nothing boots by an order that has failed.
func (e *Entries) Set(entry Entry) error {
	macs, issues := checked(entry)
	if len(issues) > 0 {
		return fault.Invalid(issues...)
	}
	entry.MACs = macs
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &held{Entry: entry, ref: refOf(entry)}
	if _, over := e.spent[h.ref]; over {
		return nil // set once more: its token was fetched meanwhile, and what was set since counts
	}
	e.drop(e.byNode[entry.NodeID])
	for _, mac := range macs {
		e.drop(e.byMAC[mac])
	}
	e.add(h)
	if err := e.save(); err != nil {
		e.drop(h)
		return err
	}
	return nil
}

func (e *Entries) add(h *held) {
	e.byNode[h.NodeID], e.byRef[h.ref], e.byMedium[mediumOf(h.ref)] = h, h, h
	for _, mac := range h.MACs {
		e.byMAC[mac] = h
	}
}

// Clear takes the machine's entry away.
func (e *Entries) Clear(nodeID string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(e.byNode[nodeID])
	return e.save()
}

// Find gives the live entry of a MAC, and the reference under which its token is fetched. An entry whose token was fetched
// is over: the machine has booted from it.
func (e *Entries) Find(mac string) (entry Entry, ref string, ok bool) {
	mac, err := normal(mac)
	if err != nil {
		return Entry{}, "", false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.live(e.byMAC[mac])
	if h == nil {
		return Entry{}, "", false
	}
	found := h.Entry
	found.Token = ""
	return found, h.ref, true
}

// TakeToken gives the token behind a reference, once, to a machine that has one of the entry's MACs. A machine that has none
// is refused without spending it. UNAVAILABLE: that it is spent can't be kept, so it is not; the machine may ask again.
func (e *Entries) TakeToken(ref string, macs []string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.live(e.byRef[ref])
	if h == nil {
		return "", fault.New(fault.NotFound, "there is no such boot entry, or its token was fetched already").
			WithRemedy("boot from the network again under a fresh entry")
	}
	for _, mac := range macs {
		if mac, err := normal(mac); err == nil && slices.Contains(h.MACs, mac) {
			e.drop(h)
			e.spent[h.ref] = h.ExpiresAt
			if err := e.save(); err != nil {
				delete(e.spent, h.ref)
				e.add(h)
				return "", fault.Wrap(err, fault.Unavailable, "the token can't be handed over now").WithRemedy("ask again in a moment")
			}
			return h.Token, nil
		}
	}
	return "", fault.New(fault.Forbidden, "the boot entry is another machine's")
}

// live drops an entry that has expired.
func (e *Entries) live(h *held) *held {
	if h != nil && !e.now().Before(h.ExpiresAt) {
		e.drop(h)
		return nil
	}
	return h
}

func (e *Entries) drop(h *held) {
	if h == nil {
		return
	}
	delete(e.byNode, h.NodeID)
	delete(e.byRef, h.ref)
	delete(e.byMedium, mediumOf(h.ref))
	for _, mac := range h.MACs {
		delete(e.byMAC, mac)
	}
}

// checked normalises the MACs and lists what would not do in a script: nothing may end a line or a word of it.
func checked(entry Entry) (macs []string, issues []fault.Issue) {
	bad := func(path, message string) { issues = append(issues, fault.Issue{Path: path, Message: message}) }
	for _, mac := range entry.MACs {
		good, err := normal(mac)
		if err != nil {
			bad("macs", "is not a MAC address")
			continue
		}
		macs = append(macs, good)
	}
	if entry.NodeID == "" {
		bad("nodeId", "is needed")
	}
	if len(entry.MACs) == 0 {
		bad("macs", "at least one is needed")
	}
	for path, location := range map[string]string{"kernel": entry.Kernel, "initrd": entry.Initrd} {
		if u, err := url.Parse(location); location == "" || err != nil || (u.Host != "" && u.Scheme != "http" && u.Scheme != "https") {
			bad(path, "is neither an http URL nor a file's name")
		}
	}
	for _, word := range append([]string{entry.Kernel, entry.Initrd}, entry.Args...) {
		if !isWord(word) {
			bad("args", "a word has blanks, control characters or ${}")
		}
	}
	return macs, issues
}

// isWord tells whether a text stays one word in an iPXE script, and is not expanded there.
func isWord(s string) bool {
	return s != "" && !strings.Contains(s, "${") && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '|' || r == '&' || r == ';'
	})
}

// normal writes a MAC in lower case with colons.
func normal(mac string) (string, error) {
	address, err := net.ParseMAC(mac)
	if err != nil || len(address) != 6 {
		return "", fault.Invalid(fault.Issue{Path: "mac", Message: "is not a MAC address"})
	}
	return address.String(), nil
}
