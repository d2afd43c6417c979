package redfish

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/domain/node"
)

// cpus is what the processors tell, gathered one by one.
type cpus struct {
	node.CPU
	cores, threads tally
}

// tally is a sum of numbers, some of which may not be known.
type tally struct {
	sum    int64
	missed bool
}

func (c *tally) add(d document, name string) {
	_, told := d.number(name)
	c.missed = c.missed || !told
	c.sum = min(c.sum+d.whole(name), 1<<31) // no sum of nonsense overflows
}

// architectures are the instruction sets under the names that kernels give them.
var architectures = map[schemas.InstructionSet]string{
	schemas.X8664InstructionSet:  "x86_64",
	schemas.ARMA64InstructionSet: "aarch64",
	schemas.RV64InstructionSet:   "riscv64",
}

func (c *cpus) add(p document) {
	c.cores.add(p, "TotalCores")
	c.threads.add(p, "TotalThreads")
	c.Model = cmp.Or(c.Model, spaced(p.known("Model")))
	c.Architecture = cmp.Or(c.Architecture, architectures[schemas.InstructionSet(p.text("InstructionSet"))])
	if schemas.ProcessorType(p.text("ProcessorType")) != schemas.CoreProcessorType {
		c.Sockets++
	}
}

// spaced takes out the blanks that some controllers pad with.
func spaced(s string) string { return strings.Join(strings.Fields(s), " ") }

func (t *taking) processors(ctx context.Context) {
	var s source
	var all cpus
	for _, p := range t.collection(ctx, &s, t.sys.link("Processors")) {
		kind := schemas.ProcessorType(p.text("ProcessorType"))
		switch kind {
		case schemas.CPUProcessorType, schemas.CoreProcessorType, "":
			all.add(p)
		case schemas.GPUProcessorType, schemas.FPGAProcessorType, schemas.AcceleratorProcessorType, schemas.DSPProcessorType:
			t.addDevice(p, kind)
		default: // parts of processors
		}
	}
	t.accelerators(ctx)
	t.summarize(&s, all)
	t.inv.Sources["processors"] = s.String()
}

// summarize takes from the system's summary what the processors themselves leave open.
func (t *taking) summarize(s *source, all cpus) {
	summary := t.sys.object("ProcessorSummary")
	count := summary.whole("Count")
	if all.Sockets == 0 || s.missed {
		all.Sockets = bounded(count)
	}
	all.Model = cmp.Or(all.Model, spaced(summary.known("Model")))
	if all.threads.missed || s.missed {
		all.threads.sum = 0 // some of them are not how many there are
	}
	all.Threads = bounded(cmp.Or(all.threads.sum, summary.whole("LogicalProcessorCount")))
	cores := all.cores.sum
	if sum := summary.whole("CoreCount"); sum > 0 && (cores == 0 || all.cores.missed || s.missed) {
		cores, s.found = sum, true
	}
	if cores == 0 && count > 0 {
		s.found, s.missed = true, true
		t.note("the controller does not tell how many cores the processors have")
	}
	t.inv.Hardware.Cores = bounded(cores)
	if all.CPU != (node.CPU{}) {
		t.inv.Hardware.CPU = &all.CPU
	}
}

// bounded is a count that fits an int everywhere.
func bounded(n int64) int { return int(min(n, 1<<31-1)) }

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
