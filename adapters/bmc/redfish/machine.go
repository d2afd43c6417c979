package redfish

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/fault"
)

// machine is one computer system behind a controller.
type machine struct {
	c      *conn
	wanted string // Target.System
}

var (
	_ bmc.Machine     = (*machine)(nil)
	_ bmc.Identifier  = (*machine)(nil)
	_ bmc.Powerer     = (*machine)(nil)
	_ bmc.Booter      = (*machine)(nil)
	_ bmc.MediaLoader = (*machine)(nil)
	_ bmc.Inspector   = (*machine)(nil)
	_ bmc.Sensor      = (*machine)(nil)
)

// Learned is what is known after the calls so far.
func (m *machine) Learned() json.RawMessage {
	raw, err := json.Marshal(memory{learned: m.c.known(), facts: m.known()})
	if err != nil {
		return nil
	}
	return raw
}

// Fingerprint is that of the certificate that was accepted last.
func (m *machine) Fingerprint() string {
	if p := m.c.wire.seen.Load(); p != nil {
		return *p
	}
	return ""
}

// Close gives the connection back; the session stays for the next Open, for a while.
func (m *machine) Close(context.Context) error {
	m.c.release()
	return nil
}

// find learns the service and the system, from memory where it may.
func (m *machine) find(ctx context.Context, quirks json.RawMessage) error {
	if m.known().System != "" {
		return nil
	}
	old := recall(quirks)
	if m.c.known().Root == "" {
		if old.Root != "" {
			m.c.learn(func(l *learned) { *l = old.learned })
		}
		if err := m.c.readRoot(ctx); err != nil {
			return err
		}
	}
	if old.System != "" && old.For == m.wanted {
		m.learn(func(f *facts) { *f = old.facts })
		_, err := m.c.authorize(ctx, request{})
		return err
	}
	return m.findSystem(ctx)
}

// rootForms are the two spellings of the service root; controllers know one or both.
var rootForms = []string{"/redfish/v1/", "/redfish/v1"}

// readRoot reads the service root, which needs no credentials; where it does all the same, it gets them.
func (c *conn) readRoot(ctx context.Context) error {
	forms := slices.Clone(rootForms)
	if c.known().Root == forms[1] {
		slices.Reverse(forms)
	}
	var failed error
	for _, open := range []bool{true, false} {
		for _, path := range forms {
			doc, _, err := c.read(ctx, request{method: http.MethodGet, path: path, open: open})
			if err == nil && doc.object("error") == nil {
				c.keepRoot(path, doc)
				return nil
			}
			if failed == nil || statusOf(failed) != 0 {
				failed = err
			}
			if n := statusOf(err); err != nil && (n == 0 || n >= 500) {
				return err // neither the spelling nor the credentials are to blame
			}
		}
		if n := statusOf(failed); n != 401 && n != 403 {
			break
		}
	}
	if failed == nil {
		failed = broken(bmc.BadAnswer, "the controller has no usable service root")
	}
	return failed
}

func (c *conn) keepRoot(path string, root document) {
	c.learn(func(l *learned) {
		l.Root = path
		keep := func(to *string, links ...string) {
			for _, found := range links {
				if found != "" {
					*to = found
					return
				}
			}
		}
		service := strings.TrimRight(root.link("SessionService"), "/")
		if service != "" {
			service += "/Sessions"
		}
		keep(&l.Sessions, root.link("Links", "Sessions"), service)
		keep(&l.Systems, root.link("Systems"), "/redfish/v1/Systems")
		keep(&l.Managers, root.link("Managers"))
		keep(&l.Chassis, root.link("Chassis"))
		keep(&l.Accounts, root.link("AccountService"))
		keep(&l.Tasks, root.link("Tasks"))
		keep(&l.Provider, root.link("Links", "ManagerProvidingService"))
		l.Vendor = rootVendor(root)
	})
}

// rootVendor is whose quirks apply, as the service root tells: its Vendor, else a key of its Oem, known ones first.
func rootVendor(root document) string {
	if v := root.label("Vendor"); v != "" {
		return vendorName(v)
	}
	var other string
	for _, key := range sortedKeys(root.object("Oem")) {
		name, known := knownVendor(key)
		switch {
		case known:
			return name
		case other == "" && !strings.Contains(key, "@"):
			other = key
		}
	}
	return other
}

// candidate is a system that may be the machine.
type candidate struct {
	path string
	doc  document
}

func (s candidate) names() []string {
	return []string{s.doc.text("Id"), s.doc.text("UUID"), s.doc.text("SerialNumber"), s.doc.text("SKU"), lastName(s.path)}
}

func (s candidate) called(name string) bool {
	return slices.ContainsFunc(s.names(), func(n string) bool { return n != "" && strings.EqualFold(n, name) })
}

// machineLike tells a whole machine from a baseboard of accelerators, which can neither boot nor be reset.
func (s candidate) machineLike() bool {
	return s.doc.object("Actions", "#ComputerSystem.Reset") != nil && s.doc.object("Boot") != nil &&
		!s.baseboard()
}

// baseboard tells one by its name, which is there also while the board does not answer.
func (s candidate) baseboard() bool {
	return strings.Contains(strings.ToLower(s.doc.text("Id")+" "+lastName(s.path)), "baseboard")
}

// findSystem chooses the system: by the name in the target, else the only one, else the only whole machine. More than one
// is for a person to choose from.
func (m *machine) findSystem(ctx context.Context) error {
	links, err := m.c.members(ctx, m.c.known().Systems)
	if err != nil && len(links) == 0 {
		return err
	}
	if len(links) == 1 && m.wanted == "" {
		m.choose(candidate{path: links[0]})
		return nil
	}
	var all, fit []candidate
	var failed error // of one that can't be read
	hidden := false  // one that can't be read may be a machine, too
	for _, path := range links {
		doc, _, err := m.c.get(ctx, path)
		s := candidate{path: path, doc: doc}
		if err != nil {
			failed = err
			hidden = hidden || (statusOf(err) != http.StatusNotFound && !s.baseboard())
			continue
		}
		all = append(all, s)
		if (m.wanted != "" && s.called(m.wanted)) || (m.wanted == "" && s.machineLike()) {
			fit = append(fit, s)
		}
	}
	switch {
	case len(fit) == 1 && (m.wanted != "" || !hidden):
		m.choose(fit[0])
		return nil
	case len(fit) > 1:
		return broken(bmc.AmbiguousSystem, "the controller has %d systems that may be meant", len(fit)).WithDetail("systems", ids(fit))
	case failed != nil:
		return failed
	default:
		return broken(bmc.SystemNotFound, "the controller has no such system").WithDetail("wanted", m.wanted).
			WithDetail("systems", ids(all))
	}
}

func ids(all []candidate) []string {
	out := []string{}
	for _, s := range all {
		out = append(out, s.names()[0])
	}
	slices.Sort(out)
	return out
}

func (m *machine) choose(s candidate) {
	m.learn(func(f *facts) {
		*f = facts{For: m.wanted, System: s.path}
		if by := s.doc.links("Links", "ManagedBy"); len(by) > 0 {
			f.Manager = by[0]
		}
	})
}

// system reads the machine's system. Where the remembered path is gone, or has become another machine's, it is looked for
// anew, once: nothing is ever done to a machine that is not the one meant.
func (m *machine) system(ctx context.Context) (document, *answer, error) {
	path := m.known().System
	doc, a, err := m.c.get(ctx, path)
	n := statusOf(err)
	gone := n == http.StatusNotFound || n == http.StatusGone
	moved := err == nil && m.wanted != "" && !candidate{path: path, doc: doc}.called(m.wanted)
	if !gone && !moved {
		return doc, a, err
	}
	if e := m.findSystem(ctx); e != nil { // the path stays: the next look begins where this one did
		return nil, nil, e
	}
	if gone && m.known().System == path {
		return nil, nil, err
	}
	return m.c.get(ctx, m.known().System)
}

// mostPages bounds a collection: no machine has more parts than that.
const mostPages = 500

// members lists a collection over all its pages. Counts are advice; a page that leads back is the end. On an error, what
// was found so far comes with it.
func (c *conn) members(ctx context.Context, path string) ([]string, error) {
	return c.list(ctx, path, false)
}

func (c *conn) list(ctx context.Context, path string, once bool) ([]string, error) {
	var out []string
	seen, pages := map[string]bool{}, map[string]bool{}
	for path != "" && !pages[canonical(path)] && len(pages) < mostPages {
		pages[canonical(path)] = true
		doc, _, err := c.read(ctx, request{method: http.MethodGet, path: path, once: once})
		if err != nil {
			return out, err
		}
		for _, l := range doc.links("Members") {
			if !seen[canonical(l)] {
				seen[canonical(l)] = true
				out = append(out, l)
			}
		}
		if path = doc.link("Members@odata.nextLink"); path == "" {
			path = doc.link("@odata.nextLink")
		}
	}
	return out, nil
}

// managers lists the managers of the system: those it names, else the one that provides the service, else all.
func (m *machine) managers(ctx context.Context, sys document) ([]string, error) {
	if by := sys.links("Links", "ManagedBy"); len(by) > 0 {
		return by, nil
	}
	known := m.c.known()
	if known.Provider != "" {
		return []string{known.Provider}, nil
	}
	if known.Managers == "" {
		return nil, nil
	}
	all, err := m.c.members(ctx, known.Managers)
	if fault.CodeOf(err) == fault.DriverError && statusOf(err) == http.StatusNotFound {
		return nil, nil
	}
	return all, err
}
