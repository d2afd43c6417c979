package profile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// DriverInvoke is the agent command kind that a driver operation is sent as.
const DriverInvoke = "driver.invoke"

const driverTimeout = 10 * time.Minute

// Resolve turns the steps of a checked document into ones that can run, in the order of their phases: main, on-failure,
// the profile's cleanup, the cleanup of the steps' definitions. drivers are the bindings of the hardware profile, which
// the document's own go over. It finds every issue.
func Resolve(doc Document, catalog Catalog, drivers map[string]string) ([]Resolved, []fault.Issue) {
	r := &resolver{doc: doc, catalog: catalog, drivers: drivers, taken: map[string]bool{}, brought: map[Where]string{}}
	for _, s := range doc.Steps {
		r.reserve(s)
	}
	for _, s := range doc.Cleanup {
		r.reserve(s)
	}
	var follow []Resolved
	for i, s := range doc.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		main := r.step(path, s, PhaseMain, fmt.Sprintf("%d-%s", i+1, s.Use))
		if f := s.OnFailure; f != nil && f.Step != nil {
			next := r.step(path+".onFailure", *f.Step, PhaseOnFailure, main.ID+"-on-failure")
			next.ArmedBy, main.OnFailureStep = main.ID, next.ID
			follow = append(follow, next)
		}
		r.steps = append(r.steps, main)
	}
	r.steps = append(r.steps, follow...)
	for i, s := range doc.Cleanup {
		r.steps = append(r.steps, r.step(fmt.Sprintf("cleanup[%d]", i), s, PhaseCleanup, fmt.Sprintf("cleanup-%d-%s", i+1, s.Use)))
	}
	r.ownCleanups()
	if len(r.steps) > MaxSteps {
		r.add("steps", "are %d over all phases, with the steps' own cleanup; the most is %d", len(r.steps), MaxSteps)
	}
	return r.steps, r.issues
}

type resolver struct {
	reader
	doc     Document
	catalog Catalog
	drivers map[string]string
	taken   map[string]bool  // ids
	brought map[Where]string // the newest main step that brings a computer up
	steps   []Resolved
	own     []ownCleanup
}

// ownCleanup is what a step's definition wants to run once the step was started.
type ownCleanup struct {
	armer, path string
	step        Step
}

// reserve keeps the ids that were given for the steps they were given to.
func (r *resolver) reserve(s Step) {
	r.taken[s.ID] = true
	if s.OnFailure != nil && s.OnFailure.Step != nil {
		r.taken[s.OnFailure.Step.ID] = true
	}
}

// name is the id of a step that was given none.
func (r *resolver) name(derived string) string {
	name := derived
	for n := 2; r.taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", derived, n)
	}
	r.taken[name] = true
	return name
}

func (r *resolver) step(path string, s Step, phase Phase, derived string) Resolved {
	out := Resolved{
		ID: s.ID, Phase: phase, Action: s.Use, With: compact(s.With), When: s.When, Timeout: time.Duration(s.Timeout),
		Retries: s.Retries, RetryDelay: time.Duration(s.RetryDelay), Policy: PolicyFail,
	}
	if s.ID == "" {
		out.ID = r.name(derived)
	}
	if s.OnFailure != nil && s.OnFailure.Step == nil {
		out.Policy = s.OnFailure.Policy
	}
	switch {
	case r.use(path, s, s.Use, &out):
	case s.Fallback != "" && r.use(path, s, s.Fallback, &out):
	default:
		r.unresolved(path, s)
		return out
	}
	r.checkAwait(path, s, &out)
	return out
}

// use resolves one name. It is false where the name leads nowhere; what is wrong otherwise is an issue.
func (r *resolver) use(path string, s Step, name string, out *Resolved) bool {
	if spec, found := r.catalog.Find(name); found {
		r.registered(path, s, spec, out)
		return true
	}
	concern, operation, dotted := strings.Cut(name, ".")
	if !dotted || operation == "" || !slices.Contains(Concerns, concern) || s.On == "" || s.On == OnControlPlane {
		return false
	}
	driver := r.drivers[concern]
	if own := r.doc.Drivers[concern]; own != "" {
		driver = own
	}
	if driver == "" {
		r.add(path+".use", "no driver is bound to the concern %s", concern)
	}
	out.Action, out.RunsOn, out.Command, out.Driver = name, s.On, DriverInvoke, driver
	if out.Phase == PhaseMain {
		out.Needs = r.brought[s.On]
	}
	if out.Timeout == 0 {
		out.Timeout = driverTimeout
	}
	return true
}

func (r *resolver) registered(path string, s Step, spec Spec, out *Resolved) {
	out.Action, out.RunsOn, out.Command, out.Sends = spec.ID, spec.RunsOn, spec.Command, spec.Sends
	out.Rejoin = spec.Rejoin
	if s.On != "" && s.On != spec.RunsOn && !slices.Contains(spec.Relays, s.On) {
		allowed := []string{string(spec.RunsOn)}
		for _, relay := range spec.Relays {
			allowed = append(allowed, string(relay))
		}
		r.add(path+".on", "%s runs on %s", spec.ID, strings.Join(allowed, ", "))
	}
	if out.Timeout == 0 {
		out.Timeout = spec.Timeout
	}
	if out.Retries == 0 {
		out.Retries = spec.Retries
	}
	if out.RetryDelay == 0 {
		out.RetryDelay = spec.RetryDelay
	}
	switch {
	case spec.Check != nil:
		for _, issue := range spec.Check(out.With) {
			r.add(join(path+".with", issue.Path), "%s", issue.Message)
		}
	case string(out.With) != "{}":
		r.add(path+".with", "%s takes no input", spec.ID)
	}
	for _, where := range append([]Where{spec.RunsOn}, spec.Relays...) {
		if step := r.brought[where]; step != "" && out.Phase == PhaseMain {
			out.Needs = step
		}
	}
	if spec.Brings != "" && out.Phase == PhaseMain {
		r.brought[spec.Brings] = out.ID
	}
	if spec.Cleanup != nil {
		r.own = append(r.own, ownCleanup{armer: out.ID, path: path, step: *spec.Cleanup})
	}
}

func (r *resolver) unresolved(path string, s Step) {
	why := "there is no such step"
	if concern, _, _ := strings.Cut(s.Use, "."); slices.Contains(Concerns, concern) {
		why += ", and a driver operation needs on: site, ramdisk or node"
	}
	if s.Fallback != "" {
		r.add(path+".use", "%s, nor one called %s", why, cut(s.Fallback))
		return
	}
	r.add(path+".use", "%s", why)
}

// checkAwait: only an agent on the machine itself leaves and comes back.
func (r *resolver) checkAwait(path string, s Step, out *Resolved) {
	if s.Await != awaitRejoin {
		return
	}
	if out.RunsOn != OnRamdisk && out.RunsOn != OnNode {
		r.add(path+".await", "%s does not run on the machine", out.Action)
		return
	}
	out.Rejoin = true
}

// ownCleanups appends what the definitions of the started steps want, but what the profile cleans up anyway.
func (r *resolver) ownCleanups() {
	for _, own := range r.own {
		if r.cleansUp(own.step) {
			continue
		}
		registered := len(r.own)
		s := r.step(own.path+".cleanup", own.step, PhaseCleanup, own.armer+"-cleanup")
		r.own = r.own[:registered] // a cleanup has none of its own
		s.ArmedBy = own.armer
		r.steps = append(r.steps, s)
	}
}

func (r *resolver) cleansUp(own Step) bool {
	return slices.ContainsFunc(r.doc.Cleanup, func(s Step) bool {
		return s.Use == own.Use && s.When == "" && bytes.Equal(compact(s.With), compact(own.With))
	})
}

// compact writes input in one way; none is {}.
func compact(raw json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if len(raw) == 0 || json.Compact(&out, raw) != nil {
		return json.RawMessage("{}")
	}
	return out.Bytes()
}
