package agentcommand_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

func agent(n int) id.Agent { return id.Of[id.Agent](numbered(n)) }

var (
	noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	late = noon.Add(2 * time.Hour)
)

func facts() agentcommand.Requested {
	return agentcommand.Requested{
		AgentCommand: agentcommand.IDOf("wf:1:wipe#1"), Key: "wf:1:wipe#1", Kind: agentcommand.DiskWipe,
		Role: agentcommand.RoleRamdisk, Node: id.Of[id.Node](numbered(1)), Attempt: 1, NotAfter: noon.Add(time.Hour),
		Payload: json.RawMessage(`{"method":"quick"}`), Secrets: []string{"secret:1"},
	}
}

func asked() agentcommand.Command { return agentcommand.Request{Facts: facts()} }
func handed() agentcommand.Command {
	return agentcommand.HandOut{Agent: agent(1), BootID: "b1", Now: noon}
}

func settled(as agentcommand.Status) agentcommand.Settle {
	return agentcommand.Settle{Agent: agent(1), BootID: "b1", Status: as, Result: json.RawMessage(`{}`)}
}

func play(t *testing.T, commands ...agentcommand.Command) agentcommand.State {
	t.Helper()
	var s agentcommand.State
	for i, c := range commands {
		events, err := agentcommand.Decide(s, c)
		if err != nil {
			t.Fatalf("command %d (%T): %v", i, c, err)
		}
		s = agentcommand.Decider.Fold(s, events...)
	}
	return s
}

func TestWhatIsDecided(t *testing.T) {
	other, unlike := facts(), facts()
	other.NotAfter = late
	unlike.Payload = json.RawMessage(`{"method":"crypto-erase"}`)
	done := agentcommand.Settle{Agent: agent(1), BootID: "b1", Status: agentcommand.Succeeded, Result: json.RawMessage(`{"other":1}`)}
	for name, test := range map[string]struct {
		before []agentcommand.Command
		do     agentcommand.Command
		want   agentcommand.Status // after it
		events int
		code   fault.Code
	}{
		"asked again, with another deadline":   {[]agentcommand.Command{asked()}, agentcommand.Request{Facts: other}, agentcommand.Pending, 0, ""},
		"asked again, for something else":      {[]agentcommand.Command{asked()}, agentcommand.Request{Facts: unlike}, "", 0, fault.Conflict},
		"nothing was asked":                    {nil, handed(), "", 0, fault.NotFound},
		"handed out":                           {[]agentcommand.Command{asked()}, handed(), agentcommand.Dispatched, 1, ""},
		"handed out again to the same boot":    {[]agentcommand.Command{asked(), handed()}, handed(), agentcommand.Dispatched, 0, ""},
		"handed out again once it is acked":    {[]agentcommand.Command{asked(), handed(), agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Acked}}, handed(), "", 0, fault.Conflict},
		"handed out to another boot":           {[]agentcommand.Command{asked(), handed()}, agentcommand.HandOut{Agent: agent(1), BootID: "b2", Now: noon}, "", 0, fault.Conflict},
		"handed out to another agent":          {[]agentcommand.Command{asked(), handed()}, agentcommand.HandOut{Agent: agent(2), BootID: "b1", Now: noon}, "", 0, fault.Conflict},
		"handed out too late":                  {[]agentcommand.Command{asked()}, agentcommand.HandOut{Agent: agent(1), BootID: "b1", Now: late}, agentcommand.Expired, 1, ""},
		"acked":                                {[]agentcommand.Command{asked(), handed()}, agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Acked}, agentcommand.Acked, 1, ""},
		"running without an ack":               {[]agentcommand.Command{asked(), handed()}, agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Running}, agentcommand.Running, 1, ""},
		"acked after running":                  {[]agentcommand.Command{asked(), handed(), agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Running}}, agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Acked}, agentcommand.Running, 0, ""},
		"progress of another agent":            {[]agentcommand.Command{asked(), handed()}, agentcommand.Progress{Agent: agent(2), BootID: "b1", Status: agentcommand.Acked}, "", 0, fault.NotFound},
		"settled at once":                      {[]agentcommand.Command{asked(), handed()}, settled(agentcommand.Succeeded), agentcommand.Succeeded, 1, ""},
		"settled again":                        {[]agentcommand.Command{asked(), handed(), settled(agentcommand.Succeeded)}, settled(agentcommand.Succeeded), agentcommand.Succeeded, 0, ""},
		"settled again, otherwise":             {[]agentcommand.Command{asked(), handed(), settled(agentcommand.Succeeded)}, done, "", 0, fault.InvalidState},
		"settled by another boot":              {[]agentcommand.Command{asked(), handed()}, agentcommand.Settle{Agent: agent(1), BootID: "b2", Status: agentcommand.Failed}, "", 0, fault.Conflict},
		"settled before it was handed out":     {[]agentcommand.Command{asked()}, settled(agentcommand.Succeeded), "", 0, fault.NotFound},
		"settled as something else":            {[]agentcommand.Command{asked(), handed()}, settled(agentcommand.Expired), "", 0, fault.InvalidInput},
		"a result that comes too late":         {[]agentcommand.Command{asked(), handed(), agentcommand.Expire{Now: late}}, settled(agentcommand.Succeeded), "", 0, fault.InvalidState},
		"a result after a cancel":              {[]agentcommand.Command{asked(), handed(), agentcommand.Cancel{}}, settled(agentcommand.Succeeded), "", 0, fault.InvalidState},
		"expired before its time":              {[]agentcommand.Command{asked(), handed()}, agentcommand.Expire{Now: noon}, agentcommand.Dispatched, 0, ""},
		"expired by another boot":              {[]agentcommand.Command{asked(), handed()}, agentcommand.Expire{Now: noon, BootID: "b2"}, agentcommand.Expired, 1, ""},
		"pending, whatever boots":              {[]agentcommand.Command{asked()}, agentcommand.Expire{Now: noon, BootID: "b2"}, agentcommand.Pending, 0, ""},
		"expired after a result":               {[]agentcommand.Command{asked(), handed(), settled(agentcommand.Failed)}, agentcommand.Expire{Now: late}, agentcommand.Failed, 0, ""},
		"cancelled":                            {[]agentcommand.Command{asked()}, agentcommand.Cancel{}, agentcommand.Cancelled, 1, ""},
		"cancelled twice":                      {[]agentcommand.Command{asked(), agentcommand.Cancel{}}, agentcommand.Cancel{}, agentcommand.Cancelled, 0, ""},
		"a secret":                             {[]agentcommand.Command{asked(), handed()}, agentcommand.FetchSecret{Agent: agent(1), BootID: "b1", Ref: "secret:1"}, agentcommand.Dispatched, 1, ""},
		"a secret it does not refer to":        {[]agentcommand.Command{asked(), handed()}, agentcommand.FetchSecret{Agent: agent(1), BootID: "b1", Ref: "secret:2"}, "", 0, fault.NotFound},
		"a secret for another agent":           {[]agentcommand.Command{asked(), handed()}, agentcommand.FetchSecret{Agent: agent(2), BootID: "b1", Ref: "secret:1"}, "", 0, fault.NotFound},
		"a secret before it is handed out":     {[]agentcommand.Command{asked()}, agentcommand.FetchSecret{Agent: agent(1), BootID: "b1", Ref: "secret:1"}, "", 0, fault.NotFound},
		"a secret when it is over":             {[]agentcommand.Command{asked(), handed(), settled(agentcommand.Failed)}, agentcommand.FetchSecret{Agent: agent(1), BootID: "b1", Ref: "secret:1"}, "", 0, fault.InvalidState},
		"a payload that is too large":          {nil, tooLarge(), "", 0, fault.InvalidInput},
		"an id that is not of the key":         {nil, agentcommand.Request{Facts: agentcommand.Requested{Key: "k", NotAfter: noon}}, "", 0, fault.InvalidInput},
		"a result that is too large":           {[]agentcommand.Command{asked(), handed()}, agentcommand.Settle{Agent: agent(1), BootID: "b1", Status: agentcommand.Failed, Details: make([]byte, agentcommand.MaxPayload+1)}, "", 0, fault.InvalidInput},
		"handed out to nobody":                 {[]agentcommand.Command{asked()}, agentcommand.HandOut{Now: noon}, "", 0, fault.InvalidInput},
		"handed out when it is over":           {[]agentcommand.Command{asked(), agentcommand.Cancel{}}, handed(), "", 0, fault.InvalidState},
		"progress when it is over":             {[]agentcommand.Command{asked(), handed(), agentcommand.Cancel{}}, agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Acked}, "", 0, fault.InvalidState},
		"progress that is none of the agent's": {[]agentcommand.Command{asked(), handed()}, agentcommand.Progress{Agent: agent(1), BootID: "b1", Status: agentcommand.Succeeded}, "", 0, fault.InvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, test.before...)
			events, err := agentcommand.Decide(s, test.do)
			if fault.CodeOf(err) != test.code || len(events) != test.events {
				t.Fatalf("%d events and %v; want %d and %s", len(events), err, test.events, test.code)
			}
			if after := agentcommand.Decider.Fold(s, events...); err == nil && after.Status != test.want {
				t.Errorf("it is %s, want %s", after.Status, test.want)
			}
		})
	}
}

func tooLarge() agentcommand.Command {
	f := facts()
	f.Payload = make([]byte, agentcommand.MaxPayload+1)
	return agentcommand.Request{Facts: f}
}

func TestSecretsAreNotFetchedForEver(t *testing.T) {
	s := play(t, asked(), handed())
	fetch := agentcommand.FetchSecret{Agent: agent(1), BootID: "b1", Ref: "secret:1"}
	for range agentcommand.MaxFetches {
		events, err := agentcommand.Decide(s, fetch)
		if err != nil {
			t.Fatal(err)
		}
		s = agentcommand.Decider.Fold(s, events...)
	}
	if _, err := agentcommand.Decide(s, fetch); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("once more: %v", err)
	}
}

// Whatever order verbs come in: one boot of one agent is ever given the order, a settled order stays as it is, and the fold
// of the events is the state.
func TestRandomVerbsKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s agentcommand.State
		boots := map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "verbs") {
			before := s
			events, err := agentcommand.Decide(s, draw(t))
			if err != nil && len(events) > 0 {
				t.Fatal("both events and an error")
			}
			for _, e := range events {
				if h, ok := e.(agentcommand.HandedOut); ok {
					boots[h.Agent.String()+h.BootID] = true
				}
				s = agentcommand.Evolve(s, e)
			}
			if len(boots) > 1 {
				t.Fatalf("handed out to %d boots", len(boots))
			}
			if before.Status.Settled() && !reflect.DeepEqual(before, s) {
				t.Fatalf("a settled order changed from %+v to %+v", before, s)
			}
		}
	})
}

func draw(t *rapid.T) agentcommand.Command {
	who := agent(rapid.IntRange(1, 2).Draw(t, "agent"))
	boot := rapid.SampledFrom([]string{"b1", "b2"}).Draw(t, "boot")
	now := rapid.SampledFrom([]time.Time{noon, late}).Draw(t, "now")
	status := rapid.SampledFrom([]agentcommand.Status{
		agentcommand.Acked, agentcommand.Running, agentcommand.Succeeded, agentcommand.Failed, agentcommand.Rejected,
	}).Draw(t, "status")
	return rapid.SampledFrom([]agentcommand.Command{
		asked(),
		agentcommand.HandOut{Agent: who, BootID: boot, Now: now},
		agentcommand.Progress{Agent: who, BootID: boot, Status: status},
		agentcommand.Settle{Agent: who, BootID: boot, Status: status},
		agentcommand.Expire{Now: now, BootID: boot},
		agentcommand.FetchSecret{Agent: who, BootID: boot, Ref: "secret:1"},
		agentcommand.Cancel{Reason: "aborted"},
	}).Draw(t, "verb")
}

func TestBoundCutsAtACharacter(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", agentcommand.MaxReason), "a" + strings.Repeat("é", agentcommand.MaxReason), "\xff\x00x"} {
		got := agentcommand.Bound(text)
		if len(got) > agentcommand.MaxReason || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Errorf("%.20q became %d bytes", text, len(got))
		}
		if again := agentcommand.Bound(got); again != got {
			t.Error("bounding twice differs")
		}
	}
}

func TestKindsAreJoinedOnce(t *testing.T) {
	own := agentcommand.Kind{
		Name: "vendor.flash", RunsOn: []agentcommand.Role{agentcommand.RoleSite},
		Payload: func() agentcommand.Payload { return &agentcommand.Reboot{} },
	}
	all, err := agentcommand.Join(agentcommand.Kinds, []agentcommand.Kind{own})
	if err != nil || len(all) != len(agentcommand.Kinds)+1 {
		t.Fatalf("%d kinds, %v", len(all), err)
	}
	for _, wrong := range [][]agentcommand.Kind{{own, own}, {{Name: "x"}}} {
		if _, err := agentcommand.Join(wrong); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	if _, err := agentcommand.Join(agentcommand.Kinds); err != nil {
		t.Errorf("the shipped ones: %v", err)
	}
}

// What may be done by two agents at the same time is told by name: a new operation changes something until it is said to read.
func TestWhatReads(t *testing.T) {
	var reads []string
	for _, o := range agentcommand.Operations {
		if o.Reads() {
			reads = append(reads, o.Concern+"."+o.Name)
		}
	}
	want := []string{"bmc.identify", "power.get", "boot.get", "management.getSensors", "inspect.outOfBand"}
	if !slices.Equal(want, reads) {
		t.Errorf("%v; want %v", reads, want)
	}
	if (agentcommand.Operation{Concern: "bios", Name: "get"}).Reads() {
		t.Error("what is not known reads")
	}
}

// Two sets of facts never give the same bytes to sign.
func TestSigningInputBindsEveryField(t *testing.T) {
	base := func() []byte {
		return agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 1, "b", []byte("p"), []byte("r"), noon)
	}
	others := [][]byte{
		agentcommand.SigningInput(agentcommand.IDOf("other"), "a", facts().Node, 1, "b", []byte("p"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "ab", facts().Node, 1, "", []byte("p"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", id.Of[id.Node](numbered(2)), 1, "b", []byte("p"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 2, "b", []byte("p"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 1, "c", []byte("p"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 1, "b", []byte("q"), []byte("r"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 1, "b", []byte("p"), []byte("s"), noon),
		agentcommand.SigningInput(facts().AgentCommand, "a", facts().Node, 1, "b", []byte("p"), []byte("r"), late),
	}
	for i, other := range others {
		if string(other) == string(base()) {
			t.Errorf("case %d signs the same bytes", i)
		}
	}
}
