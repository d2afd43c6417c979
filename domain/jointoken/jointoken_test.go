package jointoken_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func minted() jointoken.Minted {
	return jointoken.Minted{
		Token: id.Of[id.JoinToken](numbered(1)), Hash: "hash", Role: jointoken.RoleDiscovery, Node: id.Of[id.Node](numbered(2)),
		ExpiresAt: noon.Add(time.Hour), MaxUses: 1,
		Expect: jointoken.Expect{MACs: []string{"b8:ce:f6:00:00:01", "b8:ce:f6:00:00:02"}, Serial: "S1"},
	}
}

func redeem(n int) jointoken.Redeem {
	return jointoken.Redeem{
		Use: jointoken.Use{KeyHash: strconv.Itoa(n), Agent: id.Of[id.Agent](numbered(10 + n))}, As: "ramdisk", Now: noon,
		Claims: jointoken.Claims{MACs: []string{"52:54:00:00:00:01", "B8-CE-F6-00-00-02"}, Serial: " S1 "},
	}
}

func play(t *testing.T, commands ...jointoken.Command) jointoken.State {
	t.Helper()
	var s jointoken.State
	for i, c := range commands {
		events, err := jointoken.Decide(s, c)
		if err != nil {
			t.Fatalf("command %d (%T): %v", i, c, err)
		}
		s = jointoken.Decider.Fold(s, events...)
	}
	return s
}

func TestRedeem(t *testing.T) {
	late, asNode, otherMAC, otherSerial, otherAgent := redeem(1), redeem(1), redeem(1), redeem(1), redeem(1)
	late.Now = noon.Add(2 * time.Hour)
	asNode.As = "node"
	otherMAC.Claims.MACs = []string{"52:54:00:00:00:01"}
	otherSerial.Claims.Serial = ""
	otherAgent.Use.Agent = id.Of[id.Agent](numbered(99))
	mint := jointoken.Mint{Facts: minted(), Now: noon}
	for name, test := range map[string]struct {
		before []jointoken.Command
		do     jointoken.Command
		events int
		want   fault.Code
	}{
		"the first time":            {[]jointoken.Command{mint}, redeem(1), 1, ""},
		"the same key again":        {[]jointoken.Command{mint, redeem(1)}, redeem(1), 0, ""},
		"another key":               {[]jointoken.Command{mint, redeem(1)}, redeem(2), 0, fault.Unauthenticated},
		"the key as another agent":  {[]jointoken.Command{mint, redeem(1)}, otherAgent, 0, fault.Conflict},
		"after it expired":          {[]jointoken.Command{mint}, late, 0, fault.Unauthenticated},
		"after it was revoked":      {[]jointoken.Command{mint, jointoken.Revoke{}}, redeem(1), 0, fault.Unauthenticated},
		"one that was never minted": {nil, redeem(1), 0, fault.Unauthenticated},
		"as another role":           {[]jointoken.Command{mint}, asNode, 0, fault.Forbidden},
		"from another machine":      {[]jointoken.Command{mint}, otherMAC, 0, fault.Forbidden},
		"without a serial":          {[]jointoken.Command{mint}, otherSerial, 0, fault.Forbidden},
		"minted twice":              {[]jointoken.Command{mint}, mint, 0, fault.Conflict},
		"revoked twice":             {[]jointoken.Command{mint, jointoken.Revoke{}}, jointoken.Revoke{}, 0, ""},
		"revoked, never minted":     {nil, jointoken.Revoke{}, 0, fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := jointoken.Decide(play(t, test.before...), test.do)
			if fault.CodeOf(err) != test.want || len(events) != test.events {
				t.Errorf("%d events and %v; want %d and %s", len(events), err, test.events, test.want)
			}
		})
	}
}

func TestMintListsWhatIsWrong(t *testing.T) {
	for name, change := range map[string]func(*jointoken.Minted){
		"role":        func(m *jointoken.Minted) { m.Role = "admin" },
		"uses":        func(m *jointoken.Minted) { m.MaxUses = 0 },
		"in the past": func(m *jointoken.Minted) { m.ExpiresAt = noon },
		"for ever":    func(m *jointoken.Minted) { m.ExpiresAt = noon.Add(2 * jointoken.MaxLife) },
		"no node":     func(m *jointoken.Minted) { m.Node = id.Node{} },
		"no pool":     func(m *jointoken.Minted) { m.Role, m.Node = jointoken.RoleNode, id.Node{} },
		"a pool":      func(m *jointoken.Minted) { m.Pool = id.Of[id.Pool](numbered(5)) },
		"a hash":      func(m *jointoken.Minted) { m.Hash = "" },
		"labels":      func(m *jointoken.Minted) { m.Labels = map[string]string{"a": "b"} },
	} {
		facts := minted()
		change(&facts)
		if _, err := jointoken.Decide(jointoken.State{}, jointoken.Mint{Facts: facts, Now: noon}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhichClaimDiffers(t *testing.T) {
	const uuidText, swapped = "4c4c4544-0042-3510-8052-b4c04f564831", "44454c4c-4200-1035-8052-B4C04F564831"
	for _, test := range []struct {
		expect jointoken.Expect
		claims jointoken.Claims
		want   string
	}{
		{jointoken.Expect{}, jointoken.Claims{}, ""},
		{jointoken.Expect{ProductUUID: uuidText}, jointoken.Claims{ProductUUID: uuidText}, ""},
		{jointoken.Expect{ProductUUID: uuidText}, jointoken.Claims{ProductUUID: swapped}, ""},
		{jointoken.Expect{ProductUUID: uuidText}, jointoken.Claims{}, "productUuid"},
		{jointoken.Expect{ProductUUID: uuidText}, jointoken.Claims{ProductUUID: "00000000-0000-0000-0000-000000000000"}, "productUuid"},
		{jointoken.Expect{GPUUUID: "GPU-1"}, jointoken.Claims{GPUUUIDs: []string{"gpu-2", "gpu-1"}}, ""},
		{jointoken.Expect{GPUUUID: "GPU-1"}, jointoken.Claims{GPUUUIDs: []string{"gpu-2"}}, "gpuUuids"},
		{jointoken.Expect{MACs: []string{"b8cef6000001"}}, jointoken.Claims{}, "macs"},
		{jointoken.Expect{MACs: []string{"b8ce.f600.0001"}}, jointoken.Claims{MACs: []string{"B8:CE:F6:00:00:01"}}, ""},
	} {
		if got := test.expect.Differs(test.claims); got != test.want {
			t.Errorf("%+v and %+v: %q, want %q", test.expect, test.claims, got, test.want)
		}
	}
}

// However it is tried, a token lets in no more keys than it may, and none after it was revoked.
func TestUsesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := minted()
		facts.MaxUses = rapid.IntRange(1, 4).Draw(t, "uses")
		events, err := jointoken.Decide(jointoken.State{}, jointoken.Mint{Facts: facts, Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		s := jointoken.Decider.Fold(jointoken.State{}, events...)
		keys := map[string]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "tries") {
			if rapid.IntRange(0, 20).Draw(t, "revoke") == 0 {
				revoked, err := jointoken.Decide(s, jointoken.Revoke{})
				if err != nil {
					t.Fatal(err)
				}
				s = jointoken.Decider.Fold(s, revoked...)
			}
			try := redeem(rapid.IntRange(1, 8).Draw(t, "key"))
			used, err := jointoken.Decide(s, try)
			if err == nil && s.Revoked {
				t.Fatal("a revoked token joined somebody")
			}
			if err == nil {
				keys[try.Use.KeyHash] = true
			}
			s = jointoken.Decider.Fold(s, used...)
		}
		if len(keys) > facts.MaxUses || len(keys) != len(s.Uses) {
			t.Fatalf("%d keys and %d uses of %d", len(keys), len(s.Uses), facts.MaxUses)
		}
	})
}
