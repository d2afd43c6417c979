package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

const mib = 1 << 20

// box is a machine in memory.
type box struct {
	disks  []disk.Device
	burned agentcommand.Burned
	done   chan string
}

func newBox() *box {
	b := &box{done: make(chan string, 4)}
	for _, i := range []disk.Info{
		{Disk: node.Disk{Path: "/dev/sda", Serial: "A", Bytes: 64 * mib}},
		{Disk: node.Disk{Path: "/dev/sdb", Serial: "B", Bytes: 128 * mib}},
		{Disk: node.Disk{Path: "/dev/sdc", Serial: "STICK", Bytes: 32 * mib}, Removable: true},
	} {
		b.disks = append(b.disks, disk.NewMemory(i, disk.Means{}))
	}
	return b
}

func (b *box) BootID() string { return "boot-1" }
func (b *box) Claims(context.Context) (protocol.Claims, error) {
	return protocol.Claims{MACs: []string{"02:00:00:00:00:01"}}, nil
}
func (b *box) Hardware(context.Context) (node.Hardware, error) {
	return node.Hardware{Serial: "s", Disks: []node.Disk{{Serial: "of an older look"}}}, nil
}
func (b *box) Disks(context.Context) ([]disk.Device, error) { return b.disks, nil }
func (b *box) Burn(context.Context, agentcommand.KindName, agentcommand.Burnin, disk.Progress) (agentcommand.Burned, error) {
	return b.burned, nil
}
func (b *box) Kexec(_ context.Context, key string) error { b.done <- "kexec " + key; return nil }
func (b *box) Reboot(context.Context) error              { b.done <- "reboot"; return nil }
func (b *box) PowerOff(context.Context) error            { return errors.New("not asked for") }

func kindsOf(b *box) map[agentcommand.KindName]Handler {
	return MachineHandlers(MachineDeps{Machine: b, Seed: func() uint64 { return 1 }})
}

// perform runs a handler and gives its result as JSON.
func perform(t *testing.T, b *box, kind agentcommand.KindName, payload string) (string, func(context.Context) error, error) {
	t.Helper()
	out, after, err := kindsOf(b)[kind](t.Context(), orderOf(t, kind, payload))
	text, marshalErr := json.Marshal(out)
	check(t, marshalErr)
	return string(text), after, err
}

func TestInspectListsWhatAWipeEmpties(t *testing.T) {
	text, _, err := perform(t, newBox(), agentcommand.InspectHardware, `{}`)
	check(t, err)
	var got node.Hardware
	check(t, json.Unmarshal([]byte(text), &got))
	if len(got.Disks) != 2 || got.Disks[0].Serial != "A" || got.Disks[1].Serial != "B" || got.Serial != "s" {
		t.Errorf("got %s", text)
	}
}

func TestWipeTellsEveryDisk(t *testing.T) {
	b := newBox()
	text, _, err := perform(t, b, agentcommand.DiskWipe, `{"method":"secure-erase"}`)
	if err != nil || strings.Count(text, `"readBack":true`) != 2 || !strings.Contains(text, "removable") {
		t.Errorf("got %s, %v", text, err)
	}
	b.disks[1].(*disk.Memory).SetFaults(disk.Faults{Write: func(int64, int64) error { return errors.New("medium error") }})
	text, _, err = perform(t, b, agentcommand.DiskWipe, `{"method":"quick"}`)
	if fault.CodeOf(err) != fault.DriverError || strings.Count(text, `"readBack":true`) != 1 || !strings.Contains(text, "medium error") {
		t.Errorf("got %s, %v", text, err)
	}
}

// A wipe may take hours, and a disk that is put in meanwhile is full of somebody's data.
func TestADiskThatComesDuringAWipeFailsIt(t *testing.T) {
	for name, c := range map[string]struct {
		late disk.Info
		ok   bool
	}{
		"another disk":        {disk.Info{Disk: node.Disk{Path: "/dev/sdd", Serial: "C", Bytes: 64 * mib}}, false},
		"one of a known name": {disk.Info{Disk: node.Disk{Path: "/dev/sdd", Serial: "A", Bytes: 64 * mib}}, false},
		"a USB stick":         {disk.Info{Disk: node.Disk{Path: "/dev/sdd", Serial: "D", Bytes: 64 * mib}, Removable: true}, true},
	} {
		b := newBox()
		late := disk.NewMemory(c.late, disk.Means{})
		comes := sync.OnceFunc(func() { b.disks = append(slices.Clone(b.disks), late) })
		b.disks[0].(*disk.Memory).SetFaults(disk.Faults{Write: func(int64, int64) error { comes(); return nil }})
		text, _, err := perform(t, b, agentcommand.DiskWipe, `{"method":"quick"}`)
		if (err == nil) != c.ok || strings.Contains(text, "it came while") == c.ok {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

func TestBurnins(t *testing.T) {
	b := newBox()
	b.burned = agentcommand.Burned{Parts: []agentcommand.BurnedPart{{Name: "memory", Errors: 2}, {Name: "other"}}}
	text, _, err := perform(t, b, agentcommand.BurninMemory, `{"bytes":1024}`)
	if fault.CodeOf(err) != fault.DriverError || !strings.Contains(text, `"errors":2`) {
		t.Errorf("got %s, %v", text, err)
	}
	if text, _, err = perform(t, b, agentcommand.BurninDisk, `{"bytes":1048576}`); err != nil || strings.Count(text, `"bytes":1048576`) != 2 {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestAnImageIsWrittenAndStarted(t *testing.T) {
	content := bytes.Repeat([]byte("image "), mib/2)
	sum := sha256.Sum256(content)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/image" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(content)
	}))
	defer s.Close()
	b := newBox()
	kinds := kindsOf(b)
	ask := func(path string) Order {
		payload, err := json.Marshal(agentcommand.WriteImage{
			URL: s.URL + path, Digest: "sha256:" + hex.EncodeToString(sum[:]), Format: "raw", Bytes: int64(len(content)),
			UserDataRef: "secret:1", Hostname: "h", ReadBack: true,
		})
		check(t, err)
		return orderOf(t, agentcommand.ImageWrite, string(payload))
	}
	if _, _, err := kinds[agentcommand.BootKexec](t.Context(), orderOf(t, agentcommand.BootKexec, `{}`)); fault.CodeOf(err) != fault.DriverError {
		t.Errorf("before anything was written: %v", err)
	}
	_, _, err := kinds[agentcommand.ImageWrite](t.Context(), ask("/gone?token=hunter2"))
	if fault.CodeOf(err) != fault.DriverError || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	out, _, err := kinds[agentcommand.ImageWrite](t.Context(), ask("/image"))
	check(t, err)
	if got := out.(agentcommand.WrittenImage); got.Disk != b.disks[0].Info().Key() || got.Bytes != int64(len(content)) || !got.ReadBack {
		t.Errorf("got %+v", got)
	}
	files, err := disk.ReadConfigDrive(b.disks[0])
	if err != nil || !strings.Contains(string(files["user-data"]), "hunter2") || !strings.Contains(string(files["meta-data"]), "cmd_1") {
		t.Errorf("the config drive holds %s, %v", files, err)
	}
	_, after, err := kinds[agentcommand.BootKexec](t.Context(), orderOf(t, agentcommand.BootKexec, `{}`))
	check(t, err)
	check(t, after(t.Context()))
	if got := <-b.done; got != "kexec "+b.disks[0].Info().Key() {
		t.Errorf("it did %s", got)
	}
}

func TestReboot(t *testing.T) {
	b := newBox()
	_, after, err := perform(t, b, agentcommand.NodeReboot, `{}`)
	check(t, err)
	if len(b.done) > 0 {
		t.Fatal("it went down before its result was told")
	}
	check(t, after(t.Context()))
	if got := <-b.done; got != "reboot" {
		t.Errorf("it did %s", got)
	}
}

func TestKindsOfARole(t *testing.T) {
	for _, role := range agentcommand.Roles {
		kinds := MachineHandlers(MachineDeps{Machine: newBox(), Role: role})
		if role == agentcommand.RoleSite {
			kinds = SiteHandlers(SiteDeps{Entries: netboot.NewEntries(time.Now)})
		}
		for _, k := range agentcommand.Kinds {
			runs := false
			for _, r := range k.RunsOn {
				runs = runs || r == role
			}
			if runs = runs && k.Name != agentcommand.BurninGPU; runs != (kinds[k.Name] != nil) {
				t.Errorf("%s on %s: %v", k.Name, role, !runs)
			}
		}
	}
}

// W19: a ramdisk that nobody gives an order waits, and touches nothing.
func TestAMachineWithoutOrdersWaits(t *testing.T) {
	g := newGateway(t)
	b := newBox()
	for _, d := range b.disks {
		d.(*disk.Memory).SetFaults(disk.Faults{Write: func(int64, int64) error {
			t.Error("it writes to a disk")
			return nil
		}})
	}
	o := g.options(kindsOf(b))
	o.Role, o.Machine, o.BootID, o.Room = agentcommand.RoleRamdisk, b, "", 1
	stop := run(t, o)
	g.until("two polls", func() bool { return g.count(protocol.PathPoll) > 1 })
	check(t, stop(nil))
	if len(b.done) > 0 {
		t.Errorf("it did %s", <-b.done)
	}
}

func TestBootEntries(t *testing.T) {
	entries := netboot.NewEntries(time.Now)
	kinds := SiteHandlers(SiteDeps{Entries: entries})
	payload := `{"nodeId":"n","macs":["02:00:00:00:00:01"],"tokenRef":"secret:1","kernel":"k","initrd":"i","args":["quiet"],"expiresAt":"2999-01-01T00:00:00Z"}`
	_, _, err := kinds[agentcommand.BootEntrySet](t.Context(), orderOf(t, agentcommand.BootEntrySet, payload))
	check(t, err)
	entry, ref, ok := entries.Find("02-00-00-00-00-01")
	if !ok || entry.Kernel != "k" || entry.Token != "" {
		t.Errorf("got %+v, %v", entry, ok)
	}
	if token, err := entries.TakeToken(ref, entry.MACs); err != nil || !strings.Contains(token, "hunter2") {
		t.Errorf("got %v", err)
	}
	for range 2 { // gone is gone
		_, _, err = kinds[agentcommand.BootEntryClear](t.Context(), orderOf(t, agentcommand.BootEntryClear, `{"nodeId":"n"}`))
		check(t, err)
	}
}
