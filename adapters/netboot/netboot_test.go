package netboot_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mac = "02:00:00:00:00:01"

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func setup(t *testing.T) (*netboot.Entries, *clock, string) {
	t.Helper()
	c := &clock{t: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	entries := netboot.NewEntries(c.now)
	s := &netboot.Server{
		Entries: entries, Gateway: "https://gw:8444", CA: strings.Repeat("a", 64), Logger: slog.New(slog.DiscardHandler),
		Files: fstest.MapFS{"debian/vmlinuz": {Data: []byte("kernel")}},
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.URL = server.URL
	return entries, c, server.URL
}

func entry(c *clock) netboot.Entry {
	return netboot.Entry{
		NodeID: "node_1", MACs: []string{"02-00-00-00-00-01", "02:00:00:00:00:02"}, Kernel: "debian/vmlinuz",
		Initrd: "https://images/initrd", Args: []string{"quiet", "console=ttyS0"}, Token: "the-token", ExpiresAt: c.now().Add(time.Hour),
	}
}

func script(t *testing.T, url, mac string) netboot.Boot {
	t.Helper()
	b, err := netboot.FetchScript(t.Context(), http.DefaultClient, url, mac)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An order that is given again, late, tells of an entry that is over. The one that was set since counts.
func TestAnEntryThatIsOverTakesNoneAway(t *testing.T) {
	entries, c, url := setup(t)
	first, second := entry(c), entry(c)
	second.Token = "another"
	set := func(e netboot.Entry) {
		t.Helper()
		if err := entries.Set(e); err != nil {
			t.Fatal(err)
		}
	}
	set(first)
	if token, err := entries.TakeToken(script(t, url, mac).Ref, []string{mac}); err != nil || token != first.Token {
		t.Fatal(token, err)
	}
	set(second)
	set(first)
	if token, err := entries.TakeToken(script(t, url, mac).Ref, []string{mac}); err != nil || token != second.Token {
		t.Errorf("the machine gets %q, %v", token, err)
	}
	set(second)
	if !script(t, url, mac).Exit {
		t.Error("it boots by an entry whose token was fetched")
	}
}

func TestAMachineWithAnEntryBoots(t *testing.T) {
	entries, c, url := setup(t)
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	got := script(t, url, "02:00:00:00:00:02")
	want := netboot.Boot{
		Kernel: url + "/files/debian/vmlinuz", Initrd: "https://images/initrd", Args: []string{"quiet", "console=ttyS0"},
		Gateway: "https://gw:8444", CA: strings.Repeat("a", 64), Site: url, Ref: got.Ref, Port: "02:00:00:00:00:02",
		Again: []string{url + "/boot/02:00:00:00:00:02"},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Ref) < 20 {
		t.Error(diff)
	}
	if text := fetch(t, got.Kernel, http.StatusOK); text != "kernel" {
		t.Errorf("the kernel is %q", text)
	}
	fetch(t, url+"/files/debian", http.StatusNotFound)
	fetch(t, url+"/files/debian/../../etc/passwd", http.StatusNotFound)
}

func fetch(t *testing.T, url string, status int) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		t.Errorf("%s: %s, %v", url, answer.Status, err)
	}
	return string(text)
}

// W37: the token is in no script; it is given once, to a machine with a MAC of the entry, while the entry lives.
func TestATokenIsGivenOnce(t *testing.T) {
	entries, c, url := setup(t)
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fetch(t, url+"/boot/"+mac, http.StatusOK), "the-token") {
		t.Error("the token is in the script")
	}
	boot := script(t, url, mac)
	take := func(b netboot.Boot, mac string) (string, error) {
		return netboot.FetchToken(t.Context(), http.DefaultClient, b, []string{"02:00:00:00:00:09", mac}, "uuid")
	}
	if _, err := take(boot, "02:00:00:00:00:08"); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("another machine: %v", err)
	}
	if _, err := take(netboot.Boot{Site: url, Ref: "guess"}, mac); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a guess: %v", err)
	}
	if token, err := take(boot, strings.ToUpper(mac)); err != nil || token != "the-token" {
		t.Errorf("got %q, %v", token, err)
	}
	if _, err := take(boot, mac); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a second time: %v", err)
	}
	if b := script(t, url, mac); !b.Exit {
		t.Errorf("a machine that booted and took its token gets %+v", b)
	}
}

func TestOnlyOneOfManyGetsTheToken(t *testing.T) {
	entries, c, url := setup(t)
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	boot := script(t, url, mac)
	got := make(chan bool, 16)
	for range cap(got) {
		go func() {
			_, err := netboot.FetchToken(t.Context(), http.DefaultClient, boot, []string{mac}, "")
			got <- err == nil
		}()
	}
	n := 0
	for range cap(got) {
		if <-got {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d got it", n)
	}
}

func TestAnUnknownMachineIsNotTouched(t *testing.T) {
	entries, c, url := setup(t)
	exits := func(why string) {
		t.Helper()
		if b := script(t, url, mac); !b.Exit {
			t.Errorf("%s: %+v", why, b)
		}
	}
	exits("never heard of")
	if text := fetch(t, url+"/boot/"+mac, http.StatusOK); text != "#!ipxe\nexit\n" {
		t.Errorf("the script is %q", text)
	}
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	boot := script(t, url, mac)
	_ = entries.Clear("node_1")
	exits("cleared")
	if _, err := netboot.FetchToken(t.Context(), http.DefaultClient, boot, []string{mac}, ""); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("cleared: %v", err)
	}
	if err := entries.Set(entry(c)); err != nil {
		t.Fatal(err)
	}
	boot = script(t, url, mac)
	c.advance(time.Hour)
	if _, err := netboot.FetchToken(t.Context(), http.DefaultClient, boot, []string{mac}, ""); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("expired: %v", err)
	}
	exits("expired")
	fetch(t, url+"/boot/no-mac", http.StatusOK)
}

// A new entry replaces the machine's, and takes a MAC that was another's.
func TestEntriesReplace(t *testing.T) {
	entries, c, url := setup(t)
	old := entry(c)
	if err := entries.Set(old); err != nil {
		t.Fatal(err)
	}
	boot := script(t, url, mac)
	moved := entry(c)
	moved.NodeID, moved.MACs, moved.Token = "node_2", []string{mac}, "other"
	if err := entries.Set(moved); err != nil {
		t.Fatal(err)
	}
	if _, err := entries.TakeToken(boot.Ref, []string{mac}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the old reference: %v", err)
	}
	if b := script(t, url, "02:00:00:00:00:02"); !b.Exit {
		t.Errorf("what is left of the old entry: %+v", b)
	}
	if token, err := entries.TakeToken(script(t, url, mac).Ref, []string{mac}); err != nil || token != "other" {
		t.Errorf("got %q, %v", token, err)
	}
}

func TestEntriesRefuse(t *testing.T) {
	for name, change := range map[string]func(*netboot.Entry){
		"no machine":            func(e *netboot.Entry) { e.NodeID = "" },
		"no MACs":               func(e *netboot.Entry) { e.MACs = nil },
		"no MAC":                func(e *netboot.Entry) { e.MACs = []string{"x"} },
		"no kernel":             func(e *netboot.Entry) { e.Kernel = "" },
		"a kernel of elsewhere": func(e *netboot.Entry) { e.Kernel = "ftp://x/y" },
		"a second line":         func(e *netboot.Entry) { e.Args = []string{"a\nshell"} },
		"a second command":      func(e *netboot.Entry) { e.Args = []string{"a||shell"} },
		"two words":             func(e *netboot.Entry) { e.Initrd = "a b" },
		"a variable":            func(e *netboot.Entry) { e.Args = []string{"${net0/mac}"} },
	} {
		entries, c, url := setup(t)
		e := entry(c)
		change(&e)
		if err := entries.Set(e); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
		if b := script(t, url, mac); !b.Exit {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

func TestParseScriptRefuses(t *testing.T) {
	for _, text := range []string{
		"", "#!ipxe", "kernel x\ninitrd y\nboot", "#!ipxe\nkernel x\nboot", "#!ipxe\ninitrd y\nboot", "#!ipxe\nkernel x\ninitrd y",
		"#!ipxe\nshell\n", "#!ipxe\nkernel\ninitrd y\nboot\n", strings.Repeat("x", 1<<20),
	} {
		if b, err := netboot.ParseScript(text); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%.40q: %+v, %v", text, b, err)
		}
	}
}

func TestArguments(t *testing.T) {
	got := netboot.ParseArguments("BOOT_IMAGE=x metal.gateway=https://g metal.ca=c metal.site=http://s metal.ref=r metal.port=02:00:00:00:00:02 quiet\n")
	want := netboot.Boot{Gateway: "https://g", CA: "c", Site: "http://s", Ref: "r", Port: "02:00:00:00:00:02", Args: []string{"BOOT_IMAGE=x", "quiet"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("#!ipxe\nkernel http://k metal.ref=1 a=b\ninitrd http://i\nboot\n")
	f.Add("#!ipxe\nkernel http://k initrd=ramdisk metal.ref=1\ninitrd --name ramdisk http://i\nboot\n")
	f.Add("#!ipxe\nexit\n")
	f.Add(netboot.Boot{Kernel: "http://k", Initrd: "http://i", Again: []string{"http://a/boot/x", "http://b/boot/x"}}.Script())
	f.Fuzz(func(t *testing.T, text string) {
		b, err := netboot.ParseScript(text)
		if err != nil {
			return
		}
		again, err := netboot.ParseScript(b.Script())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(b) {
			t.Errorf("%q: %+v, then %+v, %v", text, b, again, err)
		}
	})
}

// A boot server that dies while a machine loads from it leaves a machine that asks every server of the site again, a while.
func TestAScriptGoesOnWithTheOtherServers(t *testing.T) {
	b := netboot.Boot{Kernel: "http://a/vmlinuz", Initrd: "http://a/initrd", Again: []string{"http://a/boot/m", "http://b/boot/m"}}
	want := `#!ipxe
kernel http://a/vmlinuz initrd=ramdisk metal.gateway= metal.ca= metal.site= metal.ref= || goto again
initrd --name ramdisk http://a/initrd || goto again
boot || goto again
:again
imgfree
inc rounds
iseq ${rounds} 120 && exit ||
sleep 5
chain --replace http://a/boot/m ||
chain --replace http://b/boot/m ||
goto again
`
	if diff := cmp.Diff(want, b.Script()); diff != "" {
		t.Error(diff)
	}
	if got, err := netboot.ParseScript(b.Script()); err != nil || !cmp.Equal(b, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Under UEFI a kernel finds its ramdisk only by the name on its command line; without one it panics.
func TestTheKernelIsToldTheNameOfItsRamdisk(t *testing.T) {
	text := netboot.Boot{Kernel: "http://x/vmlinuz", Initrd: "http://x/some/initrd.img?v=1"}.Script()
	for _, want := range []string{"kernel http://x/vmlinuz initrd=ramdisk ", "\ninitrd --name ramdisk http://x/some/initrd.img?v=1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
