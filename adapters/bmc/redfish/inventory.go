package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/domain/node"
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

func (t *taking) processors(ctx context.Context) {
	hw := &t.inv.Hardware
	var s source
	cores := int64(0)
	known := true
	for _, p := range t.collection(ctx, &s, t.sys.link("Processors")) {
		kind := schemas.ProcessorType(p.text("ProcessorType"))
		switch kind {
		case schemas.CPUProcessorType, schemas.CoreProcessorType, "":
			n, ok := p.number("TotalCores")
			known = known && ok
			cores += int64(n)
		case schemas.GPUProcessorType, schemas.FPGAProcessorType, schemas.AcceleratorProcessorType, schemas.DSPProcessorType:
			t.addDevice(p, kind)
		default: // parts of processors
		}
	}
	t.accelerators(ctx)
	if summary := t.sys.whole("ProcessorSummary", "CoreCount"); summary > 0 && (cores == 0 || !known || s.missed) {
		cores, s.found = summary, true
	}
	if cores == 0 && t.sys.whole("ProcessorSummary", "Count") > 0 {
		s.found, s.missed = true, true
		t.note("the controller does not tell how many cores the processors have")
	}
	hw.Cores = int(min(cores, 1<<31-1))
	t.inv.Sources["processors"] = s.String()
}

func (t *taking) addDevice(p document, kind schemas.ProcessorType) {
	t.inv.Hardware.Devices = append(t.inv.Hardware.Devices, node.Device{
		Class: strings.ToLower(string(kind)), Vendor: p.label("Manufacturer"), Product: p.label("Model"),
	})
}

// accelerators are those on baseboards, which some controllers show as systems of their own beside the machine.
func (t *taking) accelerators(ctx context.Context) {
	links, err := t.c.list(ctx, t.c.known().Systems, true)
	if err != nil || len(links) < 2 {
		return
	}
	links = slices.DeleteFunc(links, func(l string) bool { return canonical(l) == canonical(t.path) })
	for i, board := range t.readAll(ctx, links) {
		var s source
		switch {
		case board == nil:
			t.note("system " + lastName(links[i]) + " did not answer: its accelerators, if any, are not listed")
			continue
		case candidate{path: links[i], doc: board}.machineLike():
			continue // another machine
		}
		for _, p := range t.collection(ctx, &s, board.link("Processors")) {
			if kind := schemas.ProcessorType(p.text("ProcessorType")); kind == schemas.GPUProcessorType ||
				kind == schemas.AcceleratorProcessorType || kind == schemas.FPGAProcessorType {
				t.addDevice(p, kind)
			}
		}
		if s.missed {
			t.note("some processors of system " + lastName(links[i]) + " did not answer")
		}
	}
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

// drives reads Storage and what the chassis refers to, else SimpleStorage. A drive that tells nothing, or does not answer,
// is listed all the same: it may hold data.
func (t *taking) drives(ctx context.Context) {
	var s source
	var links []string
	seen := map[string]bool{}
	for _, unit := range t.collection(ctx, &s, t.sys.link("Storage")) {
		s.missed = s.missed || !unit.has("Drives")
		for _, l := range unit.links("Drives") {
			if !seen[canonical(l)] {
				seen[canonical(l)] = true
				links = append(links, l)
			}
		}
	}
	t.addDrives(ctx, &s, links, false)
	var more []string
	for _, chassis := range t.chassis(ctx) {
		for _, l := range chassis.links("Links", "Drives") {
			if !seen[canonical(l)] {
				seen[canonical(l)] = true
				more = append(more, l)
			}
		}
	}
	t.addDrives(ctx, &s, more, len(links) > 0)
	links = append(links, more...)
	if len(links) == 0 {
		for _, unit := range t.collection(ctx, &s, t.sys.link("SimpleStorage")) {
			for _, d := range unit.objects("Devices") {
				if d.text("Status", "State") != string(schemas.AbsentState) {
					s.missed = !t.addDrive(d, d.text("Name")) || s.missed
				}
			}
		}
	}
	t.inv.Sources["drives"] = s.String()
}

// addDrives lists drives by their links. named leaves out those without a name of their own: they may be listed already.
func (t *taking) addDrives(ctx context.Context, s *source, links []string, named bool) {
	for i, d := range t.readAll(ctx, links) {
		s.found = true
		if d == nil {
			s.missed = true
			t.note("drive " + lastName(links[i]) + " did not answer")
		}
		if named && d.text("SerialNumber") == "" && wwn(d) == "" {
			continue
		}
		if d.text("Status", "State") != string(schemas.AbsentState) {
			s.missed = !t.addDrive(d, lastName(links[i])) || s.missed
		}
	}
}

// chassis are those that the system is in; read once.
func (t *taking) chassis(ctx context.Context) []document {
	if t.boxes == nil {
		t.boxes = t.readAll(ctx, t.sys.links("Links", "Chassis"))
	}
	return t.boxes
}

// addDrive lists one drive and reports whether its size is known. Null is not zero: a drive may hold data all the same.
func (t *taking) addDrive(d document, name string) (sized bool) {
	disk := node.Disk{Model: d.label("Model"), Serial: d.label("SerialNumber"), Bytes: d.whole("CapacityBytes"), WWN: wwn(d)}
	if disk.WWN == "" && disk.Serial == "" {
		disk.Path = name // all that tells it from another
	}
	if disk.Bytes == 0 {
		t.note("drive " + name + " does not tell its size")
	}
	for _, old := range t.inv.Hardware.Disks {
		if old.Key() == disk.Key() {
			return disk.Bytes > 0
		}
	}
	t.inv.Hardware.Disks = append(t.inv.Hardware.Disks, disk)
	return disk.Bytes > 0
}

// wwn is the drive's worldwide name, in the form that kernels write.
func wwn(d document) string {
	for _, id := range d.objects("Identifiers") {
		name := strings.ToLower(strings.NewReplacer("-", "", ":", "", " ", "").Replace(id.text("DurableName")))
		name = strings.TrimPrefix(strings.TrimPrefix(name, "0x"), "naa.")
		if name == "" || strings.Trim(name, "0123456789abcdef") != "" || strings.Trim(name, "0") == "" {
			continue
		}
		switch schemas.DurableNameFormat(id.text("DurableNameFormat")) {
		case schemas.EUIDurableNameFormat:
			return "eui." + name
		case schemas.NAADurableNameFormat:
			return "0x" + name
		default: // kernels name disks by none of the others
		}
	}
	return ""
}
