package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/authz"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
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
		both.Go(func() {
			address := freePort(t)
			start(t, "http://"+address, []string{"METAL_POSTGRES=" + dsn}, "serve", "--insecure-http", "--listen", address, "--gateway-listen", "127.0.0.1:0",
				"--master-key-file", key, "--admin-token-file", token)
			clients[i] = dial(t, "http://"+address, replicaToken, 5)
		})
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
	n := enroll(t, a, estate(t, a).ID, "10.0.0.1")
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
	a, b, dsn := twoReplicas(t)
	ctx := context.Background()
	pool := estate(t, a)
	manager := processManager(t, dsn)
	for round := range 20 {
		n := enroll(t, a, pool.ID, "10.0.1."+strconv.Itoa(round+1))
		manager.ready(t, n.ID)
		won := race(t,
			func() (contract.Node, error) {
				return a.Deploy(ctx, n.ID, contract.Deploy{Profile: "image-host", Version: 1})
			},
			func() (contract.Node, error) { return b.Retire(ctx, n.ID, contract.Wipe{}) })
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

// manager does by hand what process managers do: it runs workflows to their end.
type manager struct{ *commands.Service }

func processManager(t *testing.T, dsn string) manager {
	t.Helper()
	pool, err := postgres.Open(context.Background(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	registry, err := commands.Registry()
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.New(context.Background(), pool, registry, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	authorizer, err := authz.New()
	if err != nil {
		t.Fatal(err)
	}
	return manager{commands.New(log, authorizer, nil, time.Now)} // it stores no secret
}

// ready runs the three workflows that lead from enrolling to ready.
func (m manager) ready(t *testing.T, text string) {
	t.Helper()
	n, err := id.Parse[id.Node](text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, disk := context.Background(), node.Disk{WWN: "0x5000c500a1b2c3d4"}
	for _, does := range []func(id.Workflow) error{
		func(id.Workflow) error { return nil },
		func(id.Workflow) error {
			_, err := m.RecordHardware(ctx, system(), n, node.InBand, node.Hardware{Disks: []node.Disk{disk}})
			return err
		},
		func(w id.Workflow) error {
			_, err := m.AttestWipe(ctx, system(), n, node.Wipe{
				Workflow: w, Signed: true, Method: node.WipeQuick,
				Disks: []node.WipedDisk{{Disk: disk, Method: node.WipeQuick, ReadBack: true}},
			})
			return err
		},
	} {
		started, err := m.StartWorkflow(ctx, system(), n, node.Profile{ID: "metal", Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		w := started.State.Workflow.ID
		if err := does(w); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Complete(ctx, system(), n, w, ""); err != nil {
			t.Fatal(err)
		}
	}
}

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}
