package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/test/lab"
)

// fewLives is what the test does by itself; METAL_LIVES asks for more, METAL_SEED for the same again.
const fewLives = 6

// mostMachines is how many live side by side.
const mostMachines = 10

// Machines live while metald, their site's agent and PostgreSQL are killed, in an order that follows from a seed. Each ends where
// its operator sent it, or in failed with a true reason, from where it is recovered; what must hold of any run holds of this one.
func TestLivesUnderKills(t *testing.T) {
	lives, seed := number(t, "METAL_LIVES", fewLives), uint64(number(t, "METAL_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("METAL_LIVES=%d METAL_SEED=%d", lives, seed)
	machines := min(lives, mostMachines)
	l := lab.Start(t, lab.Options{
		Machines: machines, OwnPostgres: true, RamdiskWithin: 30 * time.Second, WipeWithin: 20 * time.Second,
		SimFlags: []string{"--seed", strconv.FormatUint(seed, 10)},
	})
	r := &run{l: l, seed: seed}
	var all sync.WaitGroup
	for i, m := range l.Machines() {
		share := lives / machines
		if i < lives%machines {
			share++
		}
		all.Go(func() { r.live(t.Context(), i, m, share) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	r.kill(t, ended)
	<-ended
	for _, err := range r.wrong {
		t.Error(err)
	}
	t.Logf("%d lives; killed %v; failures that were recovered from: %v", r.lived, r.kills, r.failures)
	if total := r.kills["metald"] + r.kills["bcd"] + r.kills["PostgreSQL"]; total < max(fewLives, lives/2) {
		t.Errorf("only %d kills for %d lives", total, lives)
	}
	l.Verify()
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a number above zero", name, text)
	}
	return n
}

// run is what happens in one run.
type run struct {
	l    *lab.Lab
	seed uint64

	mu       sync.Mutex
	lived    int
	kills    map[string]int
	failures map[string]int // by code, and the state they happened in
	wrong    []error
}

func (r *run) complain(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, err)
}

// kill kills one thing after the other until everybody has lived, and starts it again after a while. Something happens between two
// kills, however slow everything is: else nobody would come any further.
func (r *run) kill(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	before := uint64(0)
	r.kills = map[string]int{}
	dice := rand.New(rand.NewPCG(r.seed, 1))
	programs := map[string]*lab.Program{"metald": r.l.Planes[0], "bcd": r.l.SiteAgent}
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(300+dice.IntN(1200)) * time.Millisecond):
		}
		if before = r.happens(t, before, ended); before == 0 {
			return
		}
		victim := []string{"metald", "metald", "bcd", "bcd", "PostgreSQL"}[dice.IntN(5)]
		r.kills[victim]++
		if p := programs[victim]; p != nil {
			p.Kill()
			<-time.After(time.Duration(dice.IntN(1500)) * time.Millisecond)
			p.Start()
		} else if err := r.l.Postgres.Crash(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// happens waits until the log is longer than it was, and gives its end; 0: everybody has lived.
func (r *run) happens(t *testing.T, before uint64, ended <-chan struct{}) uint64 {
	t.Helper()
	for {
		at, err := r.l.Client.Position(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at > before {
			return at
		}
		select {
		case <-ended:
			return 0
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// movePatience bounds one move of a machine, kills included.
const movePatience = 6 * time.Minute

// live is the lives of one machine, one after the other.
func (r *run) live(ctx context.Context, number int, m sim.Listed, lives int) {
	dice := rand.New(rand.NewPCG(r.seed, 1000+uint64(number)))
	n := ""
	for range lives {
		var err error
		if n == "" {
			n, err = r.enroll(ctx, m)
		}
		if err == nil {
			err = r.liveOnce(ctx, n, []string{"quick", "secure-erase"}[dice.IntN(2)])
		}
		if err != nil {
			r.complain(fmt.Errorf("%s: %w", m.Name, err))
			return
		}
		r.mu.Lock()
		r.lived++
		r.mu.Unlock()
	}
}

func (r *run) enroll(ctx context.Context, m sim.Listed) (string, error) {
	n, err := r.l.Client.Enroll(ctx, contract.Enrollment{
		Pool: r.l.Pool, Name: m.Name, MACs: m.MACs,
		BMC: contract.BMCAccess{Address: m.BMC.Address, Credentials: contract.Credentials{Username: m.BMC.Username, Password: m.BMC.Password}},
	})
	if err != nil {
		return "", err
	}
	r.l.Enrolled(m.Name, n.ID)
	return n.ID, r.bring(ctx, n.ID, node.Ready)
}

// liveOnce deploys a machine and gives it back. A deploy that fails is recovered from, and asked for again.
func (r *run) liveOnce(ctx context.Context, n, wipe string) error {
	for attempts := 0; ; attempts++ {
		if _, err := r.l.Client.Deploy(ctx, n, contract.Deploy{Profile: "image-host", Version: 1}); err != nil {
			return fmt.Errorf("deploy: %w", err)
		}
		state, err := r.settle(ctx, n, node.Deployed)
		if err != nil {
			return err
		}
		if state.Provision == string(node.Deployed) {
			break
		}
		if attempts == 10 {
			return fmt.Errorf("it was deployed ten times, and failed with %+v", state.LastError)
		}
		if err := r.recover(ctx, n); err != nil {
			return err
		}
		if err := r.bring(ctx, n, node.Ready); err != nil {
			return err
		}
	}
	if _, err := r.l.Client.Undeploy(ctx, n, contract.Wipe{Method: wipe}); err != nil {
		return fmt.Errorf("undeploy: %w", err)
	}
	return r.bring(ctx, n, node.Ready)
}

// bring waits until a machine is where it was sent. Where it fails on the way, it is recovered.
func (r *run) bring(ctx context.Context, n string, to node.ProvisionState) error {
	for range 10 {
		state, err := r.settle(ctx, n, to)
		if err != nil || state.Provision == string(to) {
			return err
		}
		if err := r.recover(ctx, n); err != nil {
			return err
		}
	}
	return errors.New("it was recovered ten times")
}

// trueReasons are those that a kill can be the cause of.
var trueReasons = map[string]bool{
	string(fault.Timeout): true, string(fault.RejoinTimeout): true, string(fault.DriverError): true, string(fault.UnverifiedWipe): true,
	string(fault.Unavailable): true,
}

// settle waits until a machine is in a state, or has failed for a reason that may be.
func (r *run) settle(ctx context.Context, n string, to node.ProvisionState) (contract.Node, error) {
	state, err := r.l.AwaitState(ctx, r.l.Client, n, movePatience, string(to), string(node.Failed))
	if err != nil || state.Provision != string(node.Failed) {
		return state, err
	}
	if state.LastError == nil || !trueReasons[state.LastError.Code] || state.LastError.Message == "" || !state.Maintenance {
		return state, fmt.Errorf("it failed from %s with %+v", state.FailedFrom, state.LastError)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures == nil {
		r.failures = map[string]int{}
	}
	r.failures[state.FailedFrom+": "+state.LastError.Code+" "+state.LastError.Message]++
	return state, nil
}

func (r *run) recover(ctx context.Context, n string) error {
	if _, err := r.l.Client.Recover(ctx, n); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}
