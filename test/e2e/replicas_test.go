package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/pgtest"
)

const replicaKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

const replicaToken = "0123456789abcdef0123456789abcdef0123456789abcdef"

// twoReplicas run over one database.
func twoReplicas(t *testing.T) (a, b *client.Client, dsn string) {
	t.Helper()
	dsn = pgtest.DSN(t)
	dir := t.TempDir()
	key, token := filepath.Join(dir, "key"), filepath.Join(dir, "token")
	for path, text := range map[string]string{key: replicaKey, token: replicaToken} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clients := make([]*client.Client, 2)
	var both sync.WaitGroup
	for i := range clients { // together: they migrate and make the administrator at once
		address := lab.FreeAddress(t)
		d := lab.Metald(t, address, []string{"METAL_POSTGRES=" + dsn}, "serve", "--insecure-http", "--listen", address, "--gateway-listen", "127.0.0.1:0",
			"--master-key-file", key, "--admin-token-file", token)
		both.Go(func() {
			if err := d.Run(); err != nil {
				t.Error(err)
			}
		})
		clients[i] = dial(t, "http://"+address, replicaToken, 5)
	}
	both.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return clients[0], clients[1], dsn
}

// Two replicas get one verb each on one node that both have seen at the same version: exactly one wins, each time.
func TestTwoReplicasOneWinner(t *testing.T) {
	a, b, _ := twoReplicas(t)
	ctx := context.Background()
	n := settled(t, a, enroll(t, a, estate(t, a).ID, "10.0.0.1"))
	for round := range 100 {
		reason, seen := strconv.Itoa(round), client.IfMatch(n.Version)
		won := race(t,
			func() (contract.Node, error) { return a.Cordon(ctx, n.ID, contract.Reason{Reason: "a" + reason}, seen) },
			func() (contract.Node, error) {
				return b.SetMaintenance(ctx, n.ID, contract.Maintenance{On: true, Reason: "b" + reason}, seen)
			})
		if len(won) != 1 || won[0].Version != n.Version+1 {
			t.Fatalf("round %d at version %d: won %+v", round, n.Version, won)
		}
		n = won[0]
	}
}

// Two replicas get verbs that exclude each other, and nobody names a version: the state table lets one through.
func TestTwoReplicasOneVerbOfTheTable(t *testing.T) {
	a, b, _ := twoReplicas(t)
	ctx := context.Background()
	pool := estate(t, a)
	for round := range 20 {
		n := settled(t, a, enroll(t, a, pool.ID, "10.0.1."+strconv.Itoa(round+1)))
		if _, err := a.Abort(ctx, n.ID, contract.Reason{Reason: "the wrong rack"}); err != nil {
			t.Fatal(err)
		}
		won := race(t,
			func() (contract.Node, error) { return a.Recover(ctx, n.ID) },
			func() (contract.Node, error) { return b.Abandon(ctx, n.ID, contract.Reason{Reason: "it is gone"}) })
		if len(won) != 1 {
			t.Fatalf("round %d: won %+v", round, won)
		}
		for _, c := range []*client.Client{a, b} {
			seen, err := c.GetNode(ctx, n.ID, client.AtPosition(won[0].Position))
			if err != nil || seen.Provision != won[0].Provision {
				t.Fatalf("round %d: a replica shows %s, %s won (%v)", round, seen.Provision, won[0].Provision, err)
			}
		}
	}
}

// race runs contenders at once and gives who won; the others must get CONFLICT or INVALID_STATE.
func race(t *testing.T, contenders ...func() (contract.Node, error)) (won []contract.Node) {
	t.Helper()
	views, errs := make([]contract.Node, len(contenders)), make([]error, len(contenders))
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i, contender := range contenders {
		all.Go(func() {
			<-begin
			views[i], errs[i] = contender()
		})
	}
	close(begin)
	all.Wait()
	for i, err := range errs {
		switch fault.CodeOf(err) {
		case "":
			won = append(won, views[i])
		case fault.Conflict, fault.InvalidState:
		default:
			t.Fatal(err)
		}
	}
	return won
}
