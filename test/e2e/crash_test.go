package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/lab"
)

// asked is one verb that a worker was told had happened.
type asked struct {
	key, node string
	version   uint64
	position  uint64
}

// Workers apply verbs while metald is killed again and again. What was acknowledged is in the log once; what was not is
// asked again under its key until it is, and is there once too.
func TestKillNineLosesAndDoublesNothing(t *testing.T) {
	const kills, workers = 6, 8
	dir, address := dataDir(t), lab.FreeAddress(t)
	d := lab.Metald(t, address, nil, "dev", "--data-dir", dir, "--listen", address, "--gateway-listen", "127.0.0.1:0")
	d.Start()
	url, token := "http://"+address, readToken(t, dir)
	c := dial(t, url, token, 1)
	pool := estate(t, c)
	nodes := make([]string, 3) // fewer than workers: they meet
	for i := range nodes {
		nodes[i] = enroll(t, c, pool.ID, fmt.Sprintf("10.0.0.%d", i+1)).ID
	}

	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	results := make([][]asked, workers)
	for w := range workers {
		all.Go(func() { results[w] = work(ctx, t, dial(t, url, token, 1), w, nodes) })
	}
	for range kills {
		<-time.After(time.Duration(300+rand.IntN(700)) * time.Millisecond)
		d.Kill()
		d.Start()
	}
	<-time.After(300 * time.Millisecond)
	stop()
	all.Wait()

	total := checkAcknowledged(t, dial(t, url, token, 30), nodes, results)
	t.Logf("%d kills, %d verbs acknowledged, none lost, none doubled", kills, total)
	if code := d.Stop(); code != 0 {
		t.Errorf("SIGTERM ended metald with %d: %s", code, d.Said())
	}
	if pid, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid")); err == nil {
		t.Errorf("its PostgreSQL still runs: %s", pid)
	}
}

// work applies verbs that each change something, one after another, each until it is answered for good. One that lost its
// race too often is refused for good, and must not be in the log.
func work(ctx context.Context, t *testing.T, c *client.Client, worker int, nodes []string) []asked {
	var done []asked
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		n, key := nodes[(worker+i)%len(nodes)], fmt.Sprintf("w%d-%d", worker, i)
		got, err := answered(patience, c, n, key)
		switch fault.CodeOf(err) {
		case "":
			done = append(done, asked{key, n, got.Version, got.Position})
		case fault.Conflict:
		default:
			t.Errorf("%s: %v", key, err)
			return done
		}
	}
	return done
}

// answered asks for one verb under one key until metald answers.
func answered(ctx context.Context, c *client.Client, n, key string) (contract.Node, error) {
	for {
		got, err := c.SetMaintenance(ctx, n, contract.Maintenance{On: true, Reason: key},
			client.IdempotencyKey(key), client.CorrelationID(key))
		if code := fault.CodeOf(err); code != fault.Unavailable && code != fault.Internal || ctx.Err() != nil {
			return got, err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func checkAcknowledged(t *testing.T, c *client.Client, nodes []string, results [][]asked) int {
	t.Helper()
	var last uint64 // that was acknowledged; what tells the history may be behind it
	for _, worker := range results {
		for _, a := range worker {
			last = max(last, a.position)
		}
	}
	inLog := map[string]contract.Event{} // by correlation id
	for _, n := range nodes {
		for e, err := range c.History(context.Background(), n, true, client.AtPosition(last)) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type != "node.maintenance.entered" {
				continue
			}
			if before, doubled := inLog[e.CorrelationID]; doubled {
				t.Errorf("%s happened twice, at %d and %d", e.CorrelationID, before.Position, e.Position)
			}
			inLog[e.CorrelationID] = e
		}
	}
	total := 0
	for _, worker := range results {
		for _, a := range worker {
			total++
			e, found := inLog[a.key]
			if !found || e.Version != a.version {
				t.Errorf("%s was acknowledged as version %d of %s; the log has %+v", a.key, a.version, a.node, e)
			}
			delete(inLog, a.key)
		}
	}
	for key := range inLog {
		t.Errorf("%s is in the log, and was never acknowledged", key)
	}
	if total == 0 {
		t.Error("no verb was acknowledged at all")
	}
	return total
}
