// Package lab runs a whole control plane over a simulated site, as the programs that users run: metald over PostgreSQL, the
// site's agent, and machines whose every byte can be looked at. Each program can be killed and started again.
package lab

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/postgres/cluster"
	"github.com/better-compute/metal/test/pgtest"
)

// Options say what the lab is made of.
type Options struct {
	Machines      int
	Replicas      int  // of metald; 0: one
	SiteAgents    int  // of the site, beside each other; 0: one
	OwnPostgres   bool // a server of its own, that may be killed
	Pool          contract.PoolPolicy
	SimFlags      []string      // further flags of metalsim
	RamdiskWithin time.Duration // how long a boot may take before it is given up; 0: a minute
	WipeWithin    time.Duration // how long a wipe may take before it is given up; 0: a minute

	// For machines that are not simulated: with none of metalsim's, it does not run.
	Elsewhere  []Place                   // further agents of the site, on computers of their own
	Host       string                    // address of everything that machines reach; empty: 127.0.0.1
	Seen       string                    // what machines reach it under; empty: that address
	PlaneFlags []string                  // further flags of metald
	SiteFlags  []string                  // further flags of bcd site
	Image      []byte                    // what host@1 holds; nil: a simulated OS
	Patience   time.Duration             // how long a node may take from one state to another; 0: Patience
	Story      func() string             // what a failed wait tells beside the node's own story
	Profiles   func(step map[string]any) // changes the steps of the shipped profiles; nil: they stay as they are
}

// Lab is what runs.
type Lab struct {
	T         testing.TB
	Planes    []*Program
	SiteAgent *Program
	Others    []*Program // further agents of the site
	Sim       *Program
	Postgres  *cluster.Cluster // with OwnPostgres
	Client    *client.Client   // of the first replica
	DSN       string

	Tenant, Site, Pool string
	Nodes              map[string]string // of each machine that was enrolled: the id of its node
	Image              contract.Image    // host@1, that the shipped deploy profile writes
	JoinToken          string            // of the site's agent
	Token              string            // of the administrator
	Boot               string            // URL of the site's boot server, as machines reach it
	Gateway, CA        string            // where agents go, and how they know it

	guard   *sync.Mutex // of Nodes
	dir     string
	options Options
	urls    []string // of each replica's API
	control string   // of metalsim
	images  string   // URL of the simulated images
	boots   []string // URLs of the boot servers of all of the site's agents, as machines reach them
}

// Start starts everything but enrolls nothing. All of it ends with the test.
func Start(t testing.TB, o Options) *Lab {
	t.Helper()
	o.Replicas = max(o.Replicas, 1)
	o.RamdiskWithin = cmp.Or(o.RamdiskWithin, time.Minute)
	o.WipeWithin = cmp.Or(o.WipeWithin, time.Minute)
	o.Patience = cmp.Or(o.Patience, Patience)
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	o.Seen = cmp.Or(o.Seen, o.Host)
	Path(t, "metald") // is not part of it
	began := time.Now()
	defer func() { t.Logf("the lab is up after %s", time.Since(began)) }()
	l := &Lab{T: t, options: o, Nodes: map[string]string{}, guard: &sync.Mutex{}, dir: directory(t)}
	l.database()
	l.planes()
	l.Client = l.ClientOf(0)
	l.estate()
	l.site()
	return l
}

// On is the same lab for another test: what goes wrong is that one's fault.
func (l *Lab) On(t testing.TB) *Lab {
	other := *l
	other.T = t
	return &other
}

// directory is one that the accounts of all programs can reach.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "metal-lab-") //nolint:usetesting // t.TempDir is for one account only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // what is left is in the way of nobody
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (l *Lab) database() {
	l.T.Helper()
	if !l.options.OwnPostgres {
		l.DSN = pgtest.DSN(l.T)
		return
	}
	l.Postgres = pgtest.Cluster(l.T, map[string]string{"fsync": "off"}) // what is killed is the server, not the computer
	if err := l.Postgres.CreateDatabase(l.T.Context(), "metal"); err != nil {
		l.T.Fatal(err)
	}
	l.DSN = l.Postgres.DSN("metal")
}

// planes starts the replicas of metald. Agents reach them all by one address, as behind a balancer, where there are several.
func (l *Lab) planes() {
	l.T.Helper()
	l.Token = "lab-token-" + random(l.T)
	key, token := l.file("master-key", random(l.T)), l.file("admin-token", l.Token)
	gateways := make([]string, l.options.Replicas)
	for i := range gateways {
		gateways[i] = freeAddressOf(l.T, l.options.Host)
	}
	front := gateways[0]
	if len(gateways) > 1 {
		front = balance(l.T, gateways)
	}
	l.Gateway = "https://" + front
	for _, gateway := range gateways {
		api := FreeAddress(l.T)
		l.urls = append(l.urls, "http://"+api)
		p := Metald(l.T, api, []string{"METAL_POSTGRES=" + l.DSN}, append([]string{
			"serve", "--insecure-http", "--listen", api, "--gateway-listen", gateway, "--gateway-url", l.gatewaySeen(),
			"--gateway-name", l.options.Host, "--master-key-file", key, "--admin-token-file", token,
		}, l.options.PlaneFlags...)...)
		l.Planes = append(l.Planes, p)
		p.Start()
	}
	l.CA = l.authority()
}

// seen is an address as machines reach it.
func (l *Lab) seen(address string) string {
	_, port, err := net.SplitHostPort(address)
	l.must(err)
	return net.JoinHostPort(l.options.Seen, port)
}

// gatewaySeen is where machines reach the gateway.
func (l *Lab) gatewaySeen() string {
	return "https://" + l.seen(strings.TrimPrefix(l.Gateway, "https://"))
}

// ClientOf speaks to one replica, and is patient while it is away.
func (l *Lab) ClientOf(replica int) *client.Client {
	l.T.Helper()
	c, err := client.New(client.Options{URL: l.urls[replica], Token: l.Token, Attempts: 30, Timeout: 20 * time.Second})
	if err != nil {
		l.T.Fatal(err)
	}
	l.T.Cleanup(c.Close)
	return c
}

// URL is where the first replica answers.
func (l *Lab) URL() string { return l.urls[0] }

// Metalctl runs one command line against the first replica, and gives what it printed.
func (l *Lab) Metalctl(args ...string) (string, error) {
	return run(l.T, "metalctl", []string{"METAL_URL=" + l.urls[0], "METAL_TOKEN_FILE=" + filepath.Join(l.dir, "admin-token")}, args...)
}

// Metald runs one command line of metald against the database.
func (l *Lab) Metald(args ...string) (string, error) {
	return run(l.T, "metald", []string{
		"METAL_POSTGRES=" + l.DSN, "METAL_MASTER_KEY_FILE=" + filepath.Join(l.dir, "master-key"),
	}, args...)
}

// file writes a file that only its owner reads.
func (l *Lab) file(name, text string) string {
	l.T.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.T.Fatal(err)
	}
	return path
}

func random(t testing.TB) string {
	t.Helper()
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}
