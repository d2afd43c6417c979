package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/eventstore/esdb/esdbtest"
	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/test/lab"
	"github.com/better-compute/metal/test/pgtest"
)

// The log in an event store of its own, the read models in PostgreSQL: the same API, from enrolling to the audit.
func TestServeOverAnEventStore(t *testing.T) {
	dir, address := t.TempDir(), lab.FreeAddress(t)
	key, token := filepath.Join(dir, "key"), filepath.Join(dir, "token")
	for path, text := range map[string]string{key: replicaKey, token: replicaToken} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := lab.Metald(t, address, []string{"METAL_POSTGRES=" + pgtest.DSN(t)}, "serve", "--insecure-http", "--gateway-listen", "127.0.0.1:0",
		"--listen", address, "--master-key-file", key, "--admin-token-file", token, "--eventstore", esdbtest.Start(t).URL())
	d.Start()
	c, ctx := dial(t, "http://"+address, replicaToken, 5), context.Background()
	n := settled(t, c, enroll(t, c, estate(t, c).ID, "10.0.0.1"))
	cordoned, err := c.Cordon(ctx, n.ID, contract.Reason{Reason: "fan"}, client.IfMatch(n.Version))
	if err != nil || !cordoned.Cordoned {
		t.Fatalf("got %+v, %v", cordoned, err)
	}
	then, err := c.NodeAt(ctx, n.ID, n.UpdatedAt.Format("2006-01-02T15:04:05.999999999Z07:00"))
	if err != nil || then.Cordoned || then.Version != n.Version {
		t.Errorf("as it was: %+v, %v", then, err)
	}
	history, err := client.Collect(lab.History(ctx, c, n.ID), 0)
	var types []string
	for _, e := range history {
		if strings.HasPrefix(e.Type, "node.") {
			types = append(types, e.Type)
		}
	}
	want := []string{"node.enrolled", "node.provision.enrolling", "node.provision.workflow", "node.cordon.set"}
	if diff := cmp.Diff(want, types); err != nil || diff != "" {
		t.Errorf("history: %v\n%s", err, diff)
	}
	if head, err := c.AuditHead(ctx); err != nil || head.Signature == nil {
		t.Errorf("signed head: %+v, %v", head, err)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("SIGTERM ended metald with %d: %s", code, d.Said())
	}
}
