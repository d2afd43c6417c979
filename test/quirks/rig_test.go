package quirks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// TestMain lets more tests run at one time than there are processors: most of their time they wait for a controller.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "32"); err != nil { // the command line comes after this, and wins
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// machine is everything that the Redfish driver can do.
type machine interface {
	bmc.Machine
	bmc.Identifier
	bmc.Powerer
	bmc.Booter
	bmc.MediaLoader
	bmc.Inspector
	bmc.Sensor
}

// rig is a controller with a driver in front of it.
type rig struct {
	*Server
	driver  *redfish.Driver
	target  bmc.Target
	timeout time.Duration // of each call
	late    bool          // the last call was over only with timeout
	clock   clock
}

// clock is time as the driver is told. It can be turned ahead.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// start runs a driver against a controller that is healthy but for what the changes do to it.
func start(t *testing.T, changes ...func(s *Server)) *rig {
	t.Helper()
	s := New(t)
	s.Machine()
	for _, change := range changes {
		change(s)
	}
	s.Run()
	return attach(t, s, redfish.Options{})
}

// attach runs a driver against a controller. It ends with the test, and then nothing secret may have been logged and no
// session may be left.
func attach(t *testing.T, s *Server, o redfish.Options) *rig {
	t.Helper()
	r := &rig{Server: s, target: s.Target(), timeout: time.Minute}
	var logged lockedBuffer
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	o.Now = r.clock.Now
	o.Logger = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.driver = redfish.New(o)
	t.Cleanup(func() {
		r.close()
		if logged.contains(canary) {
			t.Error("a secret was logged")
		}
	})
	return r
}

// close ends the driver, with its sessions.
func (r *rig) close() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.driver.Close(ctx); err != nil {
		r.t.Errorf("closing the driver: %v", err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(s))
}

// do opens the machine, calls it once and closes it. No error tells a secret.
func (r *rig) do(call func(ctx context.Context, m machine) error) error {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.timeout)
	defer cancel()
	defer func() { r.late = ctx.Err() != nil }()
	err := r.doWithin(ctx, func(ctx context.Context, m machine) error {
		defer func() { r.target.Quirks = m.Learned() }()
		return call(ctx, m)
	})
	if err == nil {
		return nil
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		r.t.Errorf("the error is no fault: %T %v", err, err)
		return err
	}
	if told := fmt.Sprintf("%v %v %v %v", f, f.Remedy, f.Details, f.Issues); strings.Contains(told, canary) {
		r.t.Errorf("the error tells a secret: %s", told)
	}
	return err
}

// inTime fails where the last call was over only with its caller's patience.
func (r *rig) inTime(t *testing.T) {
	t.Helper()
	if r.late {
		t.Errorf("it was not over within %v", r.timeout)
	}
}

// doWithin is do for callers at the same time.
func (r *rig) doWithin(ctx context.Context, call func(ctx context.Context, m machine) error) error {
	opened, err := r.driver.Open(ctx, r.target)
	if err != nil {
		return err
	}
	m, ok := opened.(machine)
	if !ok {
		r.t.Fatalf("%T lacks a capability", opened)
	}
	err = call(ctx, m)
	if closing := m.Close(ctx); closing != nil {
		r.t.Errorf("closing the machine: %v", closing)
	}
	return err
}

func (r *rig) read() (power node.Power, err error) {
	r.t.Helper()
	err = r.do(func(ctx context.Context, m machine) error {
		reading, err := m.Power(ctx)
		power = reading.Power
		return err
	})
	return power, err
}

func (r *rig) power(a node.PowerAction, o bmc.PowerOptions) (result bmc.PowerResult, err error) {
	r.t.Helper()
	err = r.do(func(ctx context.Context, m machine) error {
		result, err = m.SetPower(ctx, a, o)
		return err
	})
	return result, err
}

func (r *rig) boot(o bmc.BootOverride) (result bmc.BootResult, err error) {
	r.t.Helper()
	err = r.do(func(ctx context.Context, m machine) error {
		result, err = m.SetBootDevice(ctx, o)
		return err
	})
	return result, err
}

func (r *rig) insert(image string) (media bmc.Media, err error) {
	r.t.Helper()
	err = r.do(func(ctx context.Context, m machine) error {
		media, err = m.InsertMedia(ctx, image)
		return err
	})
	return media, err
}

func (r *rig) eject() error {
	r.t.Helper()
	return r.do(func(ctx context.Context, m machine) error { return m.EjectMedia(ctx) })
}

// identify and inspect are calls that must succeed.
func (r *rig) identify() (who bmc.Identity) {
	r.t.Helper()
	must(r.t, r.do(func(ctx context.Context, m machine) (err error) {
		who, err = m.Identify(ctx)
		return err
	}))
	return who
}

func (r *rig) inspect() (found bmc.Inventory) {
	r.t.Helper()
	must(r.t, r.do(func(ctx context.Context, m machine) (err error) {
		found, err = m.Inspect(ctx)
		return err
	}))
	return found
}

// macs are the MAC addresses of an inventory, sorted.
func macs(found bmc.Inventory) (list []string) {
	for _, n := range found.Hardware.NICs {
		list = append(list, n.MAC)
	}
	slices.Sort(list)
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) {
			t.Fatalf("%v %v (cause: %v)", err, f.Details, errors.Unwrap(f))
		}
		t.Fatal(err)
	}
}

// detail is one of the details of a fault, as text.
func detail(err error, name string) string {
	var f *fault.Error
	if !errors.As(err, &f) || f.Details[name] == nil {
		return ""
	}
	return fmt.Sprint(f.Details[name])
}

// wantReason checks that an error is a DRIVER_ERROR with one of the reasons.
func wantReason(t testing.TB, err error, reasons ...bmc.Reason) {
	t.Helper()
	if fault.CodeOf(err) != fault.DriverError || !slices.Contains(reasons, bmc.Reason(detail(err, "reason"))) {
		t.Errorf("error %v with reason %q; want DRIVER_ERROR for %v", err, detail(err, "reason"), reasons)
	}
}

// wantCode checks an error's code.
func wantCode(t testing.TB, err error, codes ...fault.Code) {
	t.Helper()
	if err == nil || !slices.Contains(codes, fault.CodeOf(err)) {
		t.Fatalf("error %v; want %v", err, codes)
	}
}

// same compares what is got with what is wanted.
func same[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// atMost checks a number against its bound.
func atMost(t testing.TB, what string, got, bound int) {
	t.Helper()
	if got > bound {
		t.Errorf("%s: %d; at most %d", what, got, bound)
	}
}

// soon waits until something holds.
func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// row runs the test of one row of the list of faults.
func row(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}
