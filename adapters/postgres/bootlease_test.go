package postgres_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/projections/agents"
	"github.com/better-compute/metal/test/pgtest"
)

func leaseID(n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("lease "+strconv.Itoa(n)))
}

func siteOf(n int) id.Site   { return id.Of[id.Site](leaseID(n)) }
func agentOf(n int) id.Agent { return id.Of[id.Agent](leaseID(n)) }

func swap(t *testing.T, p *postgres.Presence, next []bootlease.Lease, look ...id.Site) map[id.Site]bootlease.Standing {
	t.Helper()
	found, err := p.SwapBootLeases(t.Context(), next, look)
	if err != nil {
		t.Fatal(err)
	}
	by := map[id.Site]bootlease.Standing{}
	for _, s := range found {
		by[s.Site] = s
	}
	return by
}

func TestALeaseIsWrittenByWhoHasReadIt(t *testing.T) {
	p := postgres.NewPresence(pgtest.New(t))
	now := time.Now().UTC().Truncate(time.Microsecond)
	one, two := siteOf(1), siteOf(2)
	if got := swap(t, p, nil, one, two); len(got) != 2 || got[one].Revision != 0 || got[one].Held(now) {
		t.Fatalf("before anybody: %+v", got)
	}
	first, _ := bootlease.Lease{Site: one}.Claimed(agentOf(1), "b1", now)
	got := swap(t, p, []bootlease.Lease{first}, two)
	want := first
	want.Revision = 1
	if diff := cmp.Diff(want, got[one].Lease, cmp.Comparer(same)); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	// Another that has read nothing yet, and one that read it before it was renewed, change nothing and are told.
	late, _ := bootlease.Lease{Site: one}.Claimed(agentOf(2), "b2", now)
	other, _ := bootlease.Lease{Site: two}.Claimed(agentOf(2), "b2", now)
	got = swap(t, p, []bootlease.Lease{late, other})
	if got[one].Agent != agentOf(1) || got[one].Revision != 1 || got[two].Agent != agentOf(2) || got[two].Revision != 1 {
		t.Errorf("one of two was late: %+v", got)
	}
	renewed, _ := got[one].Claimed(agentOf(1), "b1", now.Add(time.Second))
	if again := swap(t, p, []bootlease.Lease{renewed}); again[one].Revision != 2 || !again[one].Until.Equal(renewed.Until) {
		t.Errorf("renewed: %+v", again)
	}
	if stale := swap(t, p, []bootlease.Lease{renewed}); stale[one].Revision != 2 {
		t.Errorf("written twice: %+v", stale)
	}
}

func same(a, b bootlease.Lease) bool {
	return a.Site == b.Site && a.Agent == b.Agent && a.BootID == b.BootID && a.Term == b.Term && a.Until.Equal(b.Until) && a.Revision == b.Revision
}

// Many gateways take the same free lease at once, for agents of their own: of each round one gets it, and everybody learns who.
func TestOneOfManyTakesALease(t *testing.T) {
	p := postgres.NewPresence(pgtest.New(t))
	const gateways, rounds = 8, 20
	known := make([]bootlease.Standing, gateways)
	for i := range known {
		known[i].Site = siteOf(1)
	}
	now := time.Now()
	for round := range rounds {
		now = now.Add(2 * bootlease.TTL)
		won := make([]bool, gateways)
		var all sync.WaitGroup
		for i := range gateways {
			all.Go(func() {
				next, _ := known[i].Claimed(agentOf(i), "b", now)
				found, err := p.SwapBootLeases(t.Context(), []bootlease.Lease{next}, nil)
				if err != nil || len(found) != 1 {
					t.Errorf("%d, %v", len(found), err)
					return
				}
				won[i] = found[0].Agent == agentOf(i) && found[0].Revision == next.Revision+1
			})
		}
		all.Wait()
		winners := 0
		for i, w := range won {
			if w {
				winners++
			}
			known[i] = swap(t, p, nil, siteOf(1))[siteOf(1)]
		}
		if winners != 1 || known[0].Revision != int64(round+1) {
			t.Fatalf("round %d has %d winners: %+v", round, winners, known[0])
		}
	}
}

// The boot servers of a site are those of its agents that are there, and who holds the lease is shown until it is over.
func TestBootServersAndHolders(t *testing.T) {
	db := pgtest.New(t)
	p := postgres.NewPresence(db)
	at := siteOf(1)
	for n, url := range []string{"http://a", "http://b", "", "http://gone", "http://closed", "http://revoked"} {
		agentRow(t, db, agentOf(n), at, map[bool]string{true: "stolen"}[url == "http://revoked"])
		c := agents.Contact{Agent: agentOf(n), BootID: "b", Role: agent.RoleSite, Boot: url}
		switch url {
		case "http://gone":
			c.Ago = 2 * agents.Alive
		case "http://closed":
			c.Closed = "shutdown"
		}
		if err := p.Write(t.Context(), []agents.Contact{c}, nil); err != nil {
			t.Fatal(err)
		}
	}
	lease, _ := bootlease.Lease{Site: at}.Claimed(agentOf(0), "b", time.Now().Add(time.Hour)) // it does not run out
	if got := swap(t, p, []bootlease.Lease{lease})[at].Servers; !cmp.Equal(got, []string{"http://a", "http://b"}) {
		t.Errorf("the boot servers are %v", got)
	}
	holders, err := agents.BootHolders(t.Context(), db, at.String(), siteOf(2).String())
	if err != nil || len(holders) != 1 || holders[at.String()].AgentID != agentOf(0).String() {
		t.Errorf("%+v, %v", holders, err)
	}
	if is, err := agents.Boots(t.Context(), db, at); err != nil || !is {
		t.Errorf("%t, %v", is, err)
	}
	if is, err := agents.Boots(t.Context(), db, siteOf(2)); err != nil || is {
		t.Errorf("a site without: %t, %v", is, err)
	}
	for n, held := range []bool{true, false} {
		v, err := agents.Get(t.Context(), db, agentOf(n))
		if err != nil || v.BootURL == "" || (v.BootUntil != nil) != held {
			t.Errorf("agent %d: %+v, %v", n, v, err)
		}
	}
	free, _ := swap(t, p, nil, at)[at].Released(agentOf(0), time.Now().Add(-time.Second))
	swap(t, p, []bootlease.Lease{free})
	if is, err := agents.Boots(t.Context(), db, at); err != nil || is {
		t.Errorf("given back: %t, %v", is, err)
	}
}

func agentRow(t *testing.T, db *pgxpool.Pool, a id.Agent, at id.Site, revoked string) {
	t.Helper()
	_, err := db.Exec(t.Context(), `INSERT INTO agents (agent_id, tenant_id, site_id, node_id, role, name, agent_version, boot_id, claims,
		revoked, joined_at, version, position, updated_at) VALUES ($1, '', $2, '', 'site', '', '', 'b', '{}', $3, now(), 1, 1, now())`,
		a.String(), at.String(), revoked)
	if err != nil {
		t.Fatal(err)
	}
}
