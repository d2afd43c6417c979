package ramdisk

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

const ca = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestParseSettings(t *testing.T) {
	const boot = "console=ttyS0 metal.gateway=https://g:8444 metal.ca=" + ca + " metal.site=http://s:8081 metal.ref=r"
	got, err := ParseSettings(boot + " metal.reboot-after=90s metal.log=debug metal.lldp-wait=0s")
	if err != nil || got.LLDPWait != 0 || got.RebootAfter != 90*time.Second || got.Level != slog.LevelDebug ||
		got.Gateway != "https://g:8444" || got.Ref != "r" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := ParseSettings(boot); err != nil || got.RebootAfter != 30*time.Minute || got.LLDPWait <= 30*time.Second || got.Level != slog.LevelInfo {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = ParseSettings("quiet metal.gateway=http://g metal.reboot-after=soon metal.log=loud metal.lldp-wait=-1s")
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidConfig || got.RebootAfter != 30*time.Minute {
		t.Fatalf("got %+v, %v", got, err)
	}
	var paths []string
	for _, i := range f.Issues {
		paths = append(paths, i.Path)
	}
	wrong := []string{"metal.reboot-after", "metal.log", "metal.lldp-wait", "metal.gateway", "metal.ca", "metal.site", "metal.ref"}
	if diff := cmp.Diff(wrong, paths); diff != "" {
		t.Error(diff)
	}
}

// claimer is a machine that only says who it is: anything else it is asked for is a fault of the test.
type claimer struct{ agent.Machine }

func (claimer) BootID() string { return "boot" }
func (claimer) Claims(context.Context) (protocol.Claims, error) {
	return protocol.Claims{MACs: []string{"02:00:00:00:00:01"}}, nil
}

func life(site string, after time.Duration) *Life {
	return &Life{
		Settings: Settings{Boot: netboot.Boot{Gateway: "https://127.0.0.1:1", CA: ca, Site: site, Ref: "r"}, RebootAfter: after},
		Machine:  claimer{}, Logger: slog.New(slog.DiscardHandler), Backoff: agent.Backoff{First: time.Millisecond, Most: time.Millisecond},
	}
}

// Images are asked for where the machine has booted from.
func TestTheBootServersMayKeepImages(t *testing.T) {
	settings, _ := ParseSettings("metal.site=http://10.0.0.2:8081,http://10.0.0.3:8081")
	l := Life{Settings: settings}
	if diff := cmp.Diff([]string{"http://10.0.0.2:8081", "http://10.0.0.3:8081"}, l.deps().Sites); diff != "" {
		t.Error(diff)
	}
}

// A machine whose gateway does not answer gives up after its time, with a reason, and has touched nothing.
func TestAGatewayOutOfReach(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"token":"t"}`))
	}))
	defer site.Close()
	err := life(site.URL, 300*time.Millisecond).Run(t.Context())
	if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "out of reach") {
		t.Errorf("got %v", err)
	}
}

func TestATokenThatIsRefused(t *testing.T) {
	site := httptest.NewServer((&netboot.Server{Entries: netboot.NewEntries(time.Now), Logger: slog.New(slog.DiscardHandler)}).Handler())
	defer site.Close()
	if err := life(site.URL, time.Hour).Run(t.Context()); err == nil || again(err) {
		t.Errorf("got %v", err)
	}
}

func TestTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(time.Minute)
		began := time.Now()
		release := make(chan struct{})
		kinds := w.during(map[agentcommand.KindName]agent.Handler{
			agentcommand.DiskWipe: func(context.Context, agent.Order) (any, func(context.Context) error, error) {
				<-release
				return nil, nil, nil
			},
		})
		time.Sleep(30 * time.Second)
		w.heard()
		time.Sleep(50 * time.Second) // at 80 s: an order that takes two hours
		go func() { _, _, _ = kinds[agentcommand.DiskWipe](context.Background(), agent.Order{}) }()
		time.AfterFunc(2*time.Hour, func() { close(release) })
		synctest.Wait()
		if !w.expire(t.Context()) {
			t.Error("it does not expire")
		}
		if took := time.Since(began); took < 2*time.Hour+2*time.Minute || took > 2*time.Hour+4*time.Minute {
			t.Errorf("it expired after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w.heard()
		if w.expire(ctx) {
			t.Error("it expired too early")
		}
	})
}

func TestTheClockIsSetWhereItIsOff(t *testing.T) {
	var set atomic.Int64
	l := life("", time.Hour)
	l.SetClock = func(time.Time) { set.Add(1) }
	for _, off := range []time.Duration{0, time.Second, -time.Second} {
		l.correct(time.Now().Add(off))
	}
	l.correct(time.Time{})
	if set.Load() != 0 {
		t.Errorf("it was set %d times", set.Load())
	}
	l.correct(time.Now().Add(-48 * time.Hour))
	l.correct(time.Now().Add(48 * time.Hour))
	if set.Load() != 2 {
		t.Errorf("it was set %d times", set.Load())
	}
}

// leases answers as a DHCP server does.
type leases struct {
	requests, renewals []any // lease or error
	requested, renewed int
}

func next(answers []any, n *int) (lease, error) {
	if *n >= len(answers) {
		return lease{}, errors.New("no answer")
	}
	*n++
	if err, ok := answers[*n-1].(error); ok {
		return lease{}, err
	}
	return answers[*n-1].(lease), nil
}

func (l *leases) Request(context.Context) (lease, error) { return next(l.requests, &l.requested) }
func (l *leases) Renew(context.Context) (lease, error)   { return next(l.renewals, &l.renewed) }

func TestALeaseIsKept(t *testing.T) {
	a := lease{address: netip.MustParsePrefix("192.0.2.7/24"), duration: time.Hour}
	b := lease{address: netip.MustParsePrefix("192.0.2.8/24"), duration: time.Hour}
	silent := errors.New("no answer")
	for _, test := range []struct {
		name string
		ask  leases
		lost time.Duration // after how long the first lease is given up; zero: within the time of the test it is not
	}{
		{"renewed at half of its time", leases{requests: []any{silent, a}, renewals: []any{a, a, a, a, a, a, a, a, a, a}}, 0},
		{"never renewed", leases{requests: []any{a}, renewals: nil}, time.Hour},
		{"renewed once", leases{requests: []any{a}, renewals: []any{a}}, time.Hour + 30*time.Minute},
		{"another address", leases{requests: []any{a}, renewals: []any{b}}, 30 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				began, lost := time.Now(), time.Duration(0)
				applied := 0
				p := port{
					name: "eth0", ask: &test.ask, log: slog.New(slog.DiscardHandler), again: time.Second,
					apply: func(l lease) error { applied++; return nil },
					drop: func(l lease) {
						if l.address != a.address {
							t.Errorf("dropped %v", l.address)
						}
						lost = time.Since(began)
						cancel()
					},
				}
				p.run(ctx)
				if applied != 1 || lost.Round(time.Minute) != test.lost {
					t.Errorf("applied %d times, lost after %v", applied, lost)
				}
			})
		})
	}
}

func TestModulesFollowDevices(t *testing.T) {
	m := parseModules(`asked /lib/modules/kernel/core.ko -
device /lib/modules/kernel/bus-pci.ko core pci:v00001AF4d*sv*
device /lib/modules/kernel/net.ko core,inside virtio:d00000001v*
device /lib/modules/kernel/disk.ko core virtio:d00000002v*
always /lib/modules/kernel/net_more.ko net
always /lib/modules/kernel/disk_more.ko disk
always /lib/modules/kernel/nls.ko -
asked /lib/modules/kernel/fs/vfat.ko -
device /lib/modules/kernel/bad.ko - pci:v00001AF4d*sv*
`)
	root := fstest.MapFS{"sys/bus/pci/devices/0/modalias": {Data: []byte("pci:v00001AF4d00001000sv00\n")}}
	var got, failed []string
	m.insert = func(file string) error {
		if strings.Contains(file, "bad") {
			return errors.New("bad")
		}
		got = append(got, strings.TrimPrefix(file, "/lib/modules/kernel/"))
		return nil
	}
	m.failed = func(name string, _ error) { failed = append(failed, name) }
	if !m.plug(root) {
		t.Error("nothing was loaded")
	}
	root["sys/bus/virtio/devices/0/modalias"] = &fstest.MapFile{Data: []byte("virtio:d00000001v00001AF4\n")}
	if !m.plug(root) || m.plug(root) {
		t.Error("it does not see what is new, or sees it twice")
	}
	m.load("vfat")
	m.load("vfat")
	m.load("built_in")
	if diff := cmp.Diff([]string{"core.ko", "bus-pci.ko", "nls.ko", "net.ko", "net_more.ko", "fs/vfat.ko"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"bad"}, failed); diff != "" || m.count() != 6 {
		t.Error(diff, m.count())
	}
}

// Who is not the gateway does not set the clock, and is not asked again; one that is away is asked until it answers.
func TestTheTimeOfNobody(t *testing.T) {
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	other.StartTLS()
	defer other.Close()
	l := life("", time.Hour)
	l.SetClock = func(time.Time) { t.Error("the clock is set") }
	l.Settings.Gateway = other.URL
	l.learnTime(t.Context())

	l.Settings.Gateway = "https://127.0.0.1:1"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.learnTime(ctx)
	}()
	select {
	case <-ended:
		t.Error("it is not asked again")
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	<-ended
}
