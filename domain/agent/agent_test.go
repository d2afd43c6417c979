package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

var (
	noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	late = noon.Add(48 * time.Hour)
	node = id.Of[id.Node](numbered(1))
)

func certificate(n int) agent.Certificate {
	return agent.Certificate{
		Fingerprint: fmt.Sprintf("%064x", n), PublicKey: make([]byte, 32), NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(24 * time.Hour),
	}
}

func printOf(n int) string { return certificate(n).Fingerprint }

func join(n int, as agent.Role) agent.Command {
	return agent.Join{Facts: agent.Joined{Agent: agent.Of(node), Node: node, Role: as, Certificate: certificate(n)}}
}

func open(n int, as agent.Role, boot string) agent.Command {
	return agent.OpenSession{Fingerprint: printOf(n), Role: as, BootID: boot, Now: noon}
}

func renew(with, n int) agent.Command {
	return agent.Renew{With: printOf(with), Certificate: certificate(n), Now: noon}
}

func play(t *testing.T, commands ...agent.Command) agent.State {
	t.Helper()
	var s agent.State
	for i, c := range commands {
		events, err := agent.Decide(s, c)
		if err != nil {
			t.Fatalf("command %d (%T): %v", i, c, err)
		}
		s = agent.Decider.Fold(s, events...)
	}
	return s
}

func TestWhichCertificatesAuthenticate(t *testing.T) {
	use := agent.Use{Fingerprint: printOf(2), Now: noon}
	for name, test := range map[string]struct {
		do   []agent.Command
		want []int
	}{
		"joined":                          {[]agent.Command{join(1, "ramdisk")}, []int{1}},
		"renewed, not used yet":           {[]agent.Command{join(1, "ramdisk"), renew(1, 2)}, []int{1, 2}},
		"renewed and used":                {[]agent.Command{join(1, "ramdisk"), renew(1, 2), use}, []int{2}},
		"renewed, a session opened":       {[]agent.Command{join(1, "ramdisk"), renew(1, 2), open(2, "ramdisk", "b")}, []int{2}},
		"renewed, a session by the first": {[]agent.Command{join(1, "ramdisk"), renew(1, 2), open(1, "ramdisk", "b")}, []int{1, 2}},
		"renewed again, an answer lost":   {[]agent.Command{join(1, "ramdisk"), renew(1, 2), renew(1, 3)}, []int{1, 3}},
		"renewed by the renewed":          {[]agent.Command{join(1, "ramdisk"), renew(1, 2), renew(2, 3)}, []int{2, 3}},
		"the installed OS joined":         {[]agent.Command{join(1, "ramdisk"), renew(1, 2), join(3, "node")}, []int{3}},
		"revoked":                         {[]agent.Command{join(1, "ramdisk"), renew(1, 2), agent.Revoke{Now: noon}}, nil},
		"revoked, then joined":            {[]agent.Command{join(1, "ramdisk"), agent.Revoke{Now: noon}, join(2, "ramdisk")}, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, test.do...)
			var got []int
			for n := 1; n <= 3; n++ {
				if _, err := s.Authenticates(printOf(n), noon); err == nil {
					got = append(got, n)
				} else if fault.CodeOf(err) != fault.Unauthenticated {
					t.Errorf("certificate %d: %v", n, err)
				}
				if _, err := s.Authenticates(printOf(n), late); err == nil {
					t.Errorf("certificate %d is good two days later", n)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v authenticate, want %v", got, test.want)
			}
		})
	}
}

// A machine in rescue goes back to its installed OS, whose certificate is from before.
func TestRescueKeepsTheInstalledOS(t *testing.T) {
	rescue := agent.Join{Facts: agent.Joined{Agent: agent.Of(node), Node: node, Role: agent.RoleRamdisk, Certificate: certificate(2), Keeps: true}}
	s := play(t, join(1, "node"), open(1, "node", "b1"), rescue, open(2, "ramdisk", "b2"), renew(2, 3), renew(1, 4))
	for n, want := range map[int]bool{1: true, 2: true, 3: true, 4: true} {
		if _, err := s.Authenticates(printOf(n), noon); (err == nil) != want {
			t.Errorf("in rescue, certificate %d: %v", n, err)
		}
	}
	s = play(t, join(1, "node"), open(1, "node", "b1"), rescue, open(2, "ramdisk", "b2"), renew(2, 3), renew(1, 4), open(4, "node", "b3"))
	if _, err := s.Authenticates(printOf(1), noon); err == nil {
		t.Error("the one before the renewed one is good after its use")
	}
	if s.InUse(agent.RoleNode) != printOf(4) || s.InUse(agent.RoleRamdisk) != printOf(2) || s.BootID != "b3" {
		t.Errorf("back in the OS: %+v", s)
	}
	if s = play(t, join(1, "node"), rescue, join(3, "node")); len(s.Current) != 1 {
		t.Errorf("a join that keeps nothing leaves %v", s.Current)
	}
}

// A machine that was off for a weekend renews what has expired.
func TestAnExpiredCertificateIsRenewed(t *testing.T) {
	s := play(t, join(1, "node"))
	if _, err := agent.Decide(s, agent.Renew{With: printOf(1), Certificate: certificate(2), Now: late}); err != nil {
		t.Errorf("a day after its end: %v", err)
	}
	for name, test := range map[string]struct {
		before []agent.Command
		now    time.Time
	}{
		"long after":        {[]agent.Command{join(1, "node")}, late.Add(agent.RenewGrace)},
		"revoked":           {[]agent.Command{join(1, "node"), agent.Revoke{Now: noon}}, late},
		"replaced":          {[]agent.Command{join(1, "node"), join(3, "ramdisk")}, late},
		"before its start":  {[]agent.Command{join(1, "node")}, noon.Add(-2 * time.Hour)},
		"never the agent's": {[]agent.Command{join(3, "node")}, late},
	} {
		if _, err := agent.Decide(play(t, test.before...), agent.Renew{With: printOf(1), Certificate: certificate(2), Now: test.now}); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	joined := []agent.Command{join(1, "ramdisk")}
	elsewhere := agent.Join{Facts: agent.Joined{Agent: agent.Of(node), Node: id.Of[id.Node](numbered(2)), Role: "node", Certificate: certificate(2)}}
	for name, test := range map[string]struct {
		before []agent.Command
		do     agent.Command
		want   fault.Code
	}{
		"a session of nobody":              {nil, open(1, "ramdisk", "b"), fault.Unauthenticated},
		"a session of another role":        {joined, open(1, "node", "b"), fault.Forbidden},
		"a session without a boot":         {joined, open(1, "ramdisk", ""), fault.InvalidInput},
		"a session with control":           {joined, open(1, "ramdisk", "a\x00b"), fault.InvalidInput},
		"a session of the replaced one":    {append(slices.Clone(joined), join(2, "node")), open(1, "ramdisk", "b"), fault.Unauthenticated},
		"a renewal by the replaced one":    {append(slices.Clone(joined), join(2, "node")), renew(1, 3), fault.Unauthenticated},
		"a renewal by a revoked one":       {append(slices.Clone(joined), agent.Revoke{Now: noon}), renew(1, 3), fault.Unauthenticated},
		"a certificate twice":              {joined, renew(1, 1), fault.Conflict},
		"a join of an agent of elsewhere":  {joined, elsewhere, fault.Conflict},
		"a join as nothing":                {nil, join(1, "host"), fault.InvalidInput},
		"a certificate without a key":      {nil, agent.Join{Facts: agent.Joined{Agent: agent.Of(node), Role: "node", Certificate: agent.Certificate{Fingerprint: "x"}}}, fault.InvalidInput},
		"an expired certificate's session": {joined, agent.OpenSession{Fingerprint: printOf(1), Role: "ramdisk", BootID: "b", Now: late}, fault.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			if events, err := agent.Decide(play(t, test.before...), test.do); fault.CodeOf(err) != test.want || len(events) > 0 {
				t.Errorf("%d events and %v, want %s", len(events), err, test.want)
			}
		})
	}
}

func TestSessionsAreRecordedOnChangeOnly(t *testing.T) {
	s := play(t, join(1, "ramdisk"))
	for _, step := range []struct {
		do   agent.Command
		want int
	}{
		{open(1, "ramdisk", "b1"), 1}, {open(1, "ramdisk", "b1"), 0}, {open(1, "ramdisk", "b2"), 1},
		{join(2, "node"), 1}, {open(2, "node", "b2"), 1}, {open(2, "node", "b2"), 0},
		{agent.Use{Fingerprint: printOf(2), Now: noon}, 0},
		{agent.Revoke{Now: noon}, 1}, {agent.Revoke{Now: noon}, 0},
	} {
		events, err := agent.Decide(s, step.do)
		if err != nil || len(events) != step.want {
			t.Fatalf("%#v: %d events, %v; want %d", step.do, len(events), err, step.want)
		}
		s = agent.Decider.Fold(s, events...)
	}
	if s.Role != agent.RoleNode || s.BootID != "b2" {
		t.Errorf("the newest session is %s of %s", s.BootID, s.Role)
	}
}

// Whatever happens: no certificate is ever forgotten, at most two authenticate, a revoked one never does again, and at most
// the newest join's do.
func TestNoCertificateIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s agent.State
		known, revoked, next := 0, map[string]bool{}, 1
		for range rapid.IntRange(1, 40).Draw(t, "verbs") {
			with := rapid.IntRange(1, next).Draw(t, "with")
			c := rapid.SampledFrom([]agent.Command{
				join(next, "ramdisk"), renew(with, next), open(with, "ramdisk", "b"),
				agent.Use{Fingerprint: printOf(with), Now: noon}, agent.Revoke{Now: noon},
			}).Draw(t, "verb")
			events, err := agent.Decide(s, c)
			if err != nil {
				continue
			}
			for _, e := range events {
				switch e.(type) {
				case agent.Joined, agent.Issued:
					known, next = known+1, next+1
				case agent.Revoked:
					for _, c := range s.Certificates {
						revoked[c.Fingerprint] = true
					}
				}
				s = agent.Evolve(s, e)
			}
			if len(s.Certificates) != known || len(s.Current) > 2 {
				t.Fatalf("%d certificates of %d, %d present", len(s.Certificates), known, len(s.Current))
			}
			for _, fingerprint := range s.Current {
				if revoked[fingerprint] {
					t.Fatal("a revoked certificate authenticates")
				}
			}
		}
	})
}

func TestIDsAreDerived(t *testing.T) {
	other, token := id.Of[id.Node](numbered(2)), id.Of[id.JoinToken](numbered(3))
	ids := []id.Agent{agent.Of(node), agent.Of(other), agent.OfSite(token, "a"), agent.OfSite(token, "b")}
	slices.SortFunc(ids, func(a, b id.Agent) int { return slices.Compare(a.UUIDBytes(), b.UUIDBytes()) })
	if len(slices.Compact(ids)) != 4 {
		t.Error("ids collide")
	}
}
