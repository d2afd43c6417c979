// Package agentlink_test runs the agent against the gateway: both real, over TLS, on a log in PostgreSQL.
package agentlink_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agentapi"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/disk"
	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/adapters/pki"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/test/pgtest"
)

// world is the control plane that agents see.
type world struct {
	*commands.Service
	t       *testing.T
	config  agentapi.Config
	site    id.Site
	node    node.State
	address string
	stop    func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	registry, err := commands.Registry()
	check(t, err)
	log, err := eventlog.New(t.Context(), db, registry, eventlog.Options{})
	check(t, err)
	t.Cleanup(log.Close)
	master, err := postgres.ParseMasterKey([]byte("a master key that is 32 bytes ..."[:32]))
	check(t, err)
	secrets, err := postgres.NewSecrets(t.Context(), db, master)
	check(t, err)
	ca, err := pki.Open(t.Context(), secrets, time.Now)
	check(t, err)
	authorizer, err := authz.New()
	check(t, err)
	w := &world{t: t, Service: commands.New(log, authorizer, secrets, time.Now), address: "127.0.0.1:0"}
	_, err = w.Bootstrap(t.Context())
	check(t, err)
	at, err := w.CreateSite(t.Context(), system(), commands.NewSite{Tenant: tenant.Root, Name: "fra"})
	check(t, err)
	p, err := w.CreatePool(t.Context(), system(), commands.NewPool{Tenant: tenant.Root, Site: at.State.ID, Name: "gpu", Policy: pool.Policy{}})
	check(t, err)
	n, err := w.Enroll(t.Context(), system(), commands.Enrollment{
		Pool: p.State.ID, BMC: commands.BMCAccess{Address: "10.0.0.1", Username: "root", Password: "calvin-1"},
	})
	check(t, err)
	w.site, w.node = at.State.ID, n.State
	w.config = agentapi.Config{
		Service: w.Service, Log: log, DB: db, Presence: postgres.NewPresence(db), CA: ca, Secrets: secrets,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start serves a gateway; stop kills its connections, as a crash would.
func (w *world) start() {
	w.t.Helper()
	g, err := agentapi.New(w.config)
	check(w.t, err)
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", w.address)
	check(w.t, err)
	w.address = listener.Addr().String()
	server := &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: time.Second, TLSConfig: g.TLSConfig("127.0.0.1"),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(listener, "", "")
	}()
	w.stop = func() {
		_ = listener.Close()
		_ = server.Close()
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) token(m jointoken.Minted) string {
	w.t.Helper()
	m.ExpiresAt = time.Now().Add(time.Hour)
	_, token, err := w.MintJoinToken(w.t.Context(), system(), m)
	check(w.t, err)
	return token
}

// ask sends an agent command.
func (w *world) ask(kind agentcommand.KindName, role agentcommand.Role, payload any) id.AgentCommand {
	w.t.Helper()
	text, err := json.Marshal(payload)
	check(w.t, err)
	done, err := w.RequestAgentCommand(w.t.Context(), system(), agentcommand.Requested{
		Key: "wf:1:" + string(kind) + "#1:" + uuid.NewString(), Kind: kind, Role: role, Node: w.node.ID, Tenant: tenant.Root, Site: w.site,
		Attempt: 1, NotAfter: time.Now().Add(time.Hour), Payload: text,
	})
	check(w.t, err)
	return done.State.AgentCommand
}

// settled waits until an agent command is over.
func (w *world) settled(c id.AgentCommand) (s agentcommand.State) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !s.Status.Settled(); {
		var err error
		s, _, err = w.AgentCommand(w.t.Context(), c)
		check(w.t, err)
		if time.Now().After(deadline) {
			w.t.Fatalf("it is %s", s.Status)
		}
		<-time.NewTimer(5 * time.Millisecond).C
	}
	if s.Status != agentcommand.Succeeded {
		w.t.Fatalf("it is %s: %s %s %s", s.Status, s.Code, s.Reason, s.Result)
	}
	return s
}

// run starts an agent.
func (w *world) run(o agent.Options) (stop func()) {
	w.t.Helper()
	sum := sha256.Sum256(w.config.CA.Certificate())
	o.Gateway, o.CA, o.State, o.Version = "https://"+w.address, hex.EncodeToString(sum[:]), agent.MemoryState(), "1"
	o.Backoff = agent.Backoff{First: 5 * time.Millisecond, Most: 100 * time.Millisecond}
	o.Logger = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, o) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		done <- nil
	}
	w.t.Cleanup(stop)
	return stop
}

func system() commands.Call {
	return commands.Call{Actor: commands.Actor{System: true}, Command: uuid.Must(uuid.NewV7())}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// board is a controller that only tells its power, and a driver that takes one password.
type board struct{ bmc.Powerer }

func (board) Open(_ context.Context, t bmc.Target) (bmc.Machine, error) {
	if t.Password != "calvin-1" {
		return nil, context.Canceled
	}
	return board{}, nil
}
func (board) Close(context.Context) error { return nil }
func (board) Learned() json.RawMessage    { return json.RawMessage(`{"learned":true}`) }
func (board) Fingerprint() string         { return "f1" }
func (board) Power(context.Context) (bmc.PowerReading, error) {
	return bmc.PowerReading{Power: node.PowerOn}, nil
}

// box is a machine with one disk in memory.
type box struct {
	agent.Machine
	disk *disk.Memory
}

func (b box) BootID() string { return "boot-of-box" }
func (b box) Claims(context.Context) (protocol.Claims, error) {
	return protocol.Claims{MACs: []string{"02:00:00:00:00:01"}}, nil
}
func (b box) Disks(context.Context) ([]disk.Device, error) { return []disk.Device{b.disk}, nil }

// A site agent drives a BMC and hands a machine its join token; the machine's ramdisk joins with it and wipes once, although
// the gateway dies in the middle of it. The result is signed, and believed.
func TestFromTheSiteToAWipedDisk(t *testing.T) {
	w := newWorld(t)
	entries := netboot.NewEntries(time.Now)
	boot := &netboot.Server{Entries: entries, Lease: netboot.NewLease(time.Now), Logger: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(boot.Handler())
	defer server.Close()
	boot.URL, boot.Gateway = server.URL, "https://"+w.address
	w.run(agent.Options{
		Role: agentcommand.RoleSite, Token: w.token(jointoken.Minted{Role: jointoken.RoleSite, Site: w.site}), BootID: "site-1", Room: 8,
		Kinds: agent.SiteHandlers(agent.SiteDeps{Drivers: map[string]bmc.Driver{"board": board{}}, Entries: entries}),
		Boot:  &agent.BootServer{URL: boot.URL, Entries: entries, Lease: boot.Lease},
	})
	power := w.settled(w.ask(agentcommand.DriverInvoke, agentcommand.RoleSite, agentcommand.Invoke{
		Driver: "board", Concern: "power", Operation: "get",
		BMC: agentcommand.BMC{Address: "https://10.0.0.1", TLS: json.RawMessage(`{"mode":"insecure"}`), CredentialsRef: string(w.node.BMC.Credentials)},
	}))
	if got := string(power.Result); got != `{"result":{"power":"on"},"quirks":{"learned":true},"fingerprint":"f1"}` {
		t.Errorf("got %s", got)
	}

	token := w.token(jointoken.Minted{Role: jointoken.RoleDiscovery, Node: w.node.ID})
	ref, err := w.config.Secrets.(*postgres.Secrets).Put(t.Context(), uuid.New(), []byte(token))
	check(t, err)
	w.settled(w.ask(agentcommand.BootEntrySet, agentcommand.RoleSite, agentcommand.BootEntry{
		NodeID: w.node.ID.String(), MACs: []string{"02:00:00:00:00:01"}, TokenRef: string(ref), Kernel: "https://k", Initrd: "https://i",
		ExpiresAt: time.Now().Add(time.Hour),
	}))
	script, err := netboot.FetchScript(t.Context(), server.Client(), server.URL, "02:00:00:00:00:01")
	check(t, err)
	fetched, err := netboot.FetchToken(t.Context(), server.Client(), script, []string{"02:00:00:00:00:01"}, "")
	check(t, err)
	if fetched != token {
		t.Error("the machine got another token")
	}

	machine := box{disk: disk.NewMemory(disk.Info{Disk: node.Disk{Path: "/dev/sda", Serial: "S", Bytes: 64 << 20}}, disk.Means{})}
	kinds := agent.MachineHandlers(agent.MachineDeps{Machine: machine})
	wipe := kinds[agentcommand.DiskWipe]
	var wipes atomic.Int32
	begun, died := make(chan struct{}), make(chan struct{})
	kinds[agentcommand.DiskWipe] = func(ctx context.Context, o agent.Order) (any, func(context.Context) error, error) {
		if wipes.Add(1) == 1 {
			close(begun)
			<-died
		}
		return wipe(ctx, o)
	}
	w.run(agent.Options{Role: agentcommand.RoleRamdisk, Token: fetched, Machine: machine, Kinds: kinds, Room: 1})
	c := w.ask(agentcommand.DiskWipe, agentcommand.RoleRamdisk, agentcommand.WipeDisks{Method: "quick"})
	<-begun
	w.stop()
	close(died)
	w.start()
	s := w.settled(c)
	var result struct{ Disks []node.WipedDisk }
	check(t, json.Unmarshal(s.Result, &result))
	if !s.Attested || len(result.Disks) != 1 || !result.Disks[0].ReadBack || wipes.Load() != 1 {
		t.Errorf("attested: %v; wiped %d times: %s", s.Attested, wipes.Load(), s.Result)
	}
}
