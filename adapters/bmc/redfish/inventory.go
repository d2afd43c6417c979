package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
)

// How complete a source of the inventory is.
const (
	complete = "complete"
	partial  = "partial"
	absent   = "absent"
)

// taking is one inventory being taken. Resources that do not answer make their source partial, never the whole fail.
type taking struct {
	c     *conn
	sys   document
	path  string     // of the system
	boxes []document // the chassis, once read
	mu    sync.Mutex
	notes []string
	inv   bmc.Inventory
}

// Inspect takes the inventory. Only the system must answer.
func (m *machine) Inspect(ctx context.Context) (bmc.Inventory, error) {
	sys, _, err := m.system(ctx)
	if err != nil {
		return bmc.Inventory{}, err
	}
	t := &taking{c: m.c, sys: sys, path: m.known().System}
	t.inv.Sources = map[string]string{}
	hw := &t.inv.Hardware
	hw.Manufacturer, hw.Product = sys.label("Manufacturer"), sys.label("Model")
	hw.Serial, hw.UUID = sys.label("SerialNumber"), strings.ToLower(sys.label("UUID"))
	hw.TPM = tpm(sys)
	t.firmware(ctx)
	t.processors(ctx)
	t.memory(ctx)
	t.drives(ctx)
	t.nics(ctx)
	if ctx.Err() != nil {
		return bmc.Inventory{}, ended(ctx)
	}
	slices.Sort(t.notes)
	t.inv.Notes = slices.Compact(t.notes)
	return t.inv, nil
}

func (t *taking) note(s string) {
	t.mu.Lock()
	t.notes = append(t.notes, s)
	t.mu.Unlock()
}

// source is a set of resources read together; it knows whether all answered.
type source struct {
	found  bool // at least one place to look exists
	missed bool // something did not answer
}

func (s source) String() string {
	switch {
	case !s.found:
		return absent
	case s.missed:
		return partial
	}
	return complete
}

// read gets one resource of a crawl; nil where it does not answer.
func (t *taking) read(ctx context.Context, path string) document {
	doc, _, err := t.c.read(ctx, request{method: http.MethodGet, path: path, once: true})
	if err != nil {
		return nil
	}
	return doc
}

// readAll gets many at once, as many as the controller may be asked; nil in the place of what does not answer.
func (t *taking) readAll(ctx context.Context, links []string) []document {
	out := make([]document, len(links))
	var all sync.WaitGroup
	limit := make(chan struct{}, t.c.d.o.Concurrency)
	for i, l := range links {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			out[i] = t.read(ctx, l)
		})
	}
	all.Wait()
	return out
}

// collection reads every member of a collection.
func (t *taking) collection(ctx context.Context, s *source, path string) []document {
	if path == "" {
		return nil
	}
	links, err := t.c.list(ctx, path, true)
	if err != nil {
		s.missed = true
		if len(links) == 0 {
			return nil
		}
	}
	s.found = true
	return t.present(s, t.readAll(ctx, links))
}

// present leaves out what did not answer, and slots with nothing in them.
func (t *taking) present(s *source, docs []document) []document {
	var out []document
	for _, d := range docs {
		switch {
		case d == nil:
			s.missed = true
		case d.text("Status", "State") != string(schemas.AbsentState):
			out = append(out, d)
		}
	}
	return out
}

func (t *taking) memory(ctx context.Context) {
	var s source
	bytes := int64(0)
	if gib, ok := t.sys.number("MemorySummary", "TotalSystemMemoryGiB"); ok && gib > 0 && gib < 1<<24 {
		s.found, bytes = true, int64(gib*(1<<30))
	} else {
		for _, d := range t.collection(ctx, &s, t.sys.link("Memory")) {
			bytes += d.whole("CapacityMiB") << 20
		}
	}
	t.inv.Hardware.MemoryBytes = bytes
	t.inv.Sources["memory"] = s.String()
}

// chassis are those that the system is in; read once.
func (t *taking) chassis(ctx context.Context) []document {
	if t.boxes == nil {
		t.boxes = t.readAll(ctx, t.sys.links("Links", "Chassis"))
	}
	return t.boxes
}
