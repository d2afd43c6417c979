// Package e2e runs the built programs as their users do, and breaks them.
package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// dataDir is a directory through which the database's account can pass.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "metal-dev-") //nolint:usetesting // t.TempDir is for one account only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func dial(t *testing.T, url, token string, attempts int) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: url, Token: token, Attempts: attempts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// estate makes a site and a pool.
func estate(t *testing.T, c *client.Client) contract.Pool {
	t.Helper()
	ctx := context.Background()
	site, err := c.CreateSite(ctx, contract.NewSite{Tenant: tenant.Root.String(), Name: "fra1"})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := c.CreatePool(ctx, contract.NewPool{Tenant: tenant.Root.String(), Site: site.ID, Name: "gpu"})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func enroll(t *testing.T, c *client.Client, pool, address string) contract.Node {
	t.Helper()
	n, err := c.Enroll(context.Background(), contract.Enrollment{Pool: pool, BMC: contract.BMCAccess{
		Address: address, Credentials: contract.Credentials{Username: "root", Password: "calvin"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until an enrolled node has its workflow. That waits for an agent of the site, and there is none: from then on only
// those who are asked to change the node.
func settled(t *testing.T, c *client.Client, n contract.Node) contract.Node {
	t.Helper()
	must(t, lab.Poll(lab.Patience, "the node to have its workflow", func() (err error) {
		if n, err = c.GetNode(context.Background(), n.ID); err == nil && n.Workflow == "" {
			err = errors.New("it has none")
		}
		return err
	}))
	return n
}

func readToken(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "admin-token")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file has mode %s", info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
