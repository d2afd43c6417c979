package test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/domain/workflow"
)

var update = flag.Bool("update", false, "write samples that are missing")

const samples = "../schema/events"

// Every event ever stored has a sample that never changes. Today's code reads it, folds it, and writes the current ones
// back byte for byte.
func TestEverySampleIsReadAndFolded(t *testing.T) {
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		writeMissing(t, registry)
	}
	files, err := filepath.Glob(filepath.Join(samples, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name, schema := parseName(t, file)
		seen[fmt.Sprintf("%s.v%d", name, schema)] = true
		checkSample(t, registry, file, name, schema)
	}
	for _, name := range registry.Names() {
		if key := fmt.Sprintf("%s.v%d", name, registry.Schema(name)); !seen[key] {
			t.Errorf("%s has no sample: go test ./test -run Sample -update", key)
		}
	}
}

func parseName(t *testing.T, file string) (name string, schema int) {
	t.Helper()
	base := strings.TrimSuffix(filepath.Base(file), ".json")
	cut := strings.LastIndex(base, ".v")
	if cut < 0 {
		t.Fatalf("%s is not <type>.v<N>.json", file)
	}
	if _, err := fmt.Sscanf(base[cut:], ".v%d", &schema); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return base[:cut], schema
}

func checkSample(t *testing.T, registry *event.Registry, file, name string, schema int) {
	t.Helper()
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := registry.Decode(name, schema, stored)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	fold(t, e)
	if schema != registry.Schema(name) {
		return
	}
	if again := indented(t, e); !bytes.Equal(again, stored) {
		t.Errorf("%s is written otherwise now:\n%s", file, again)
	}
}

// fold panics for an event that its aggregate does not know.
func fold(t *testing.T, e event.Event) {
	t.Helper()
	switch e := e.(type) {
	case agent.Event:
		agent.Evolve(agent.State{}, e)
	case agentcommand.Event:
		agentcommand.Evolve(agentcommand.State{}, e)
	case bootlease.Event:
		bootlease.Evolve(bootlease.State{}, e)
	case image.Event:
		image.Evolve(image.State{}, e)
	case image.PublicEvent:
		image.EvolvePublic(image.Publication{}, e)
	case jointoken.Event:
		jointoken.Evolve(jointoken.State{}, e)
	case node.Event:
		node.Evolve(node.State{}, e)
	case claim.Event:
		claim.Evolve(claim.State{}, e)
	case pool.Event:
		pool.Evolve(pool.State{}, e)
	case site.Event:
		site.Evolve(site.State{}, e)
	case tenant.Event:
		tenant.Evolve(tenant.State{}, e)
	case principal.Event:
		principal.Evolve(principal.State{}, e)
	case profile.Event:
		profile.Evolve(profile.State{}, e)
	case workflow.Event:
		workflow.Evolve(workflow.State{}, e)
	default:
		t.Errorf("%T is of no aggregate", e)
	}
}

func indented(t *testing.T, e event.Event) []byte {
	t.Helper()
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// writeMissing makes the first sample of an event, with every field set.
func writeMissing(t *testing.T, registry *event.Registry) {
	t.Helper()
	for _, table := range [][]event.Spec{
		agent.Events, agentcommand.Events, bootlease.Events, claim.Events, image.Events, image.PublicEvents, jointoken.Events,
		node.Events, pool.Events, principal.Events, profile.Events, site.Events, tenant.Events, workflow.Events,
	} {
		for _, row := range table {
			for _, name := range row.Names {
				file := filepath.Join(samples, fmt.Sprintf("%s.v%d.json", name, registry.Schema(name)))
				if _, err := os.Stat(file); err == nil {
					continue
				}
				zero, err := row.Zero()
				if err != nil {
					t.Fatal(err)
				}
				filled := reflect.New(reflect.TypeOf(zero)).Elem()
				fill(filled, name[strings.LastIndex(name, ".")+1:])
				if err := os.WriteFile(file, indented(t, filled.Interface().(event.Event)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// fill sets every exported field to something recognizable. state goes where a move says where it leads.
func fill(v reflect.Value, state string) {
	if v.CanAddr() {
		if text, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok && fillText(v, text) {
			return
		}
	}
	if some, ok := written[v.Type()]; ok {
		v.Set(reflect.ValueOf(some))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), state)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillField(v, i, state)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), state)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, state)
		fill(value, state)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// written has values of the types that are stored in a form of their own.
var written = map[reflect.Type]any{
	reflect.TypeFor[json.RawMessage]():   json.RawMessage(`{"some":"thing"}`),
	reflect.TypeFor[profile.Duration]():  profile.Duration(90 * time.Second),
	reflect.TypeFor[profile.OnFailure](): profile.OnFailure{Policy: profile.PolicyContinue},
}

// named has the fields that say under which name an event is stored.
var named = map[reflect.Type]string{
	reflect.TypeFor[node.Moved]():              "To",
	reflect.TypeFor[agentcommand.Progressed](): "Status",
	reflect.TypeFor[agentcommand.Settled]():    "Status",
	reflect.TypeFor[workflow.Ended]():          "Status",
	reflect.TypeFor[workflow.StepLeft]():       "State",
}

func fillField(v reflect.Value, i int, state string) {
	field := v.Field(i)
	if named[v.Type()] == v.Type().Field(i).Name {
		field.SetString(state)
		return
	}
	fill(field, state)
}

func fillText(v reflect.Value, text interface{ UnmarshalText([]byte) error }) bool {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return text.UnmarshalText([]byte("2026-01-02T03:04:05Z")) == nil
	}
	prefixed, ok := v.Interface().(interface{ Prefix() string })
	if !ok {
		return false
	}
	some := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	suffix := strings.TrimPrefix(id.Of[id.Node](some).String(), "node")
	return text.UnmarshalText([]byte(prefixed.Prefix()+suffix)) == nil
}
