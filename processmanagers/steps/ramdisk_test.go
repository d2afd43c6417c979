package steps_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
)

var intoRamdisk = []string{"boot.entry.set", "management.setBootDevice", "power.setPower"}

// boots has the machine come up in the ramdisk after a power cycle; after the first ones that miss, it boots its disk.
func (w *world) boots(misses int, takes time.Duration) {
	var up time.Time
	cycles := 0
	healthy := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		status, result := healthy(s)
		if strings.Contains(s.Key, "power-cycle") {
			if cycles++; cycles > misses {
				up = w.now.Add(takes)
			}
			w.session.Connected = false
		}
		return status, result
	}
	w.tick = func() {
		if !up.IsZero() && !w.now.Before(up) {
			w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: fmt.Sprintf("boot-%d", cycles), OpenedAt: up, Connected: true}
			up = time.Time{}
		}
	}
}

// The port that leads to the board's controller has the same MAC on every board of a kind: an entry for it would be each of them's,
// and so would the token. A virtual machine has no other MACs.
func TestABootEntryIsForTheMachinesOwnMACs(t *testing.T) {
	for name, c := range map[string]struct {
		declared, found, want []string
	}{
		"a server": {[]string{"b8:ce:f6:00:00:01"}, []string{"b8:ce:f6:00:00:02", "be:3a:f2:b6:05:9f"}, []string{"b8:ce:f6:00:00:01", "b8:ce:f6:00:00:02"}},
		"a virtual machine": {[]string{"52:54:00:00:00:01"}, []string{"52:54:00:00:00:01", "52:54:00:00:00:02"},
			[]string{"52:54:00:00:00:01", "52:54:00:00:00:02"}},
		"declared": {[]string{"be:3a:f2:b6:05:9f"}, []string{"b8:ce:f6:00:00:02"}, []string{"be:3a:f2:b6:05:9f", "b8:ce:f6:00:00:02"}},
	} {
		w := newWorld(t)
		w.boots(0, 3*time.Minute)
		w.node.MACs, w.node.Hardware.InBand = c.declared, &node.Hardware{}
		for _, mac := range c.found {
			w.node.Hardware.InBand.NICs = append(w.node.Hardware.InBand.NICs, node.NIC{MAC: mac})
		}
		_, err := w.run("metal.ensureRamdisk", ``)
		wants(t, name, err, "", "")
		var entry agentcommand.BootEntry
		w.payload(0, &entry)
		if diff := cmp.Diff([][]string{c.want, c.want}, [][]string{entry.MACs, w.minted[0].MACs}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRamdiskIsBootedOnce(t *testing.T) {
	w := newWorld(t)
	w.boots(0, 3*time.Minute)
	w.node.Hardware.OutOfBand = &node.Hardware{UUID: "aa", NICs: []node.NIC{{MAC: "B8:CE:F6:00:00:01"}, {MAC: "b8:ce:f6:00:00:02"}}}
	result, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "booted", err, "", "")
	if diff := cmp.Diff(intoRamdisk, w.names()); diff != "" {
		t.Errorf("agent commands:\n%s", diff)
	}
	if string(result) != `{"bootId":"boot-1","role":"ramdisk","bootEntry":true,"rounds":1}` {
		t.Errorf("result %s", result)
	}
	var entry agentcommand.BootEntry
	w.payload(0, &entry)
	macs := []string{"b8:ce:f6:00:00:01", "b8:ce:f6:00:00:02"}
	if diff := cmp.Diff(macs, entry.MACs); diff != "" {
		t.Errorf("MACs:\n%s", diff)
	}
	if w.secrets[entry.TokenRef] != theToken+"-1" || entry.Kernel != "vmlinuz" || !entry.ExpiresAt.Equal(w.current().Deadline) {
		t.Errorf("entry %+v", entry)
	}
	if until := w.until[entry.TokenRef]; !until.Equal(entry.ExpiresAt) {
		t.Errorf("the token is kept until %v, its entry until %v", until, entry.ExpiresAt)
	}
	if len(w.minted) != 1 || w.minted[0].Role != "discovery" || w.minted[0].UUID != "aa" || len(w.minted[0].MACs) != 2 {
		t.Errorf("minted %+v", w.minted)
	}
	var device struct {
		Device     string
		Persistent bool
	}
	var ask agentcommand.Invoke
	w.payload(1, &ask)
	w.decode(ask.With, &device)
	if device.Device != "network" || device.Persistent {
		t.Errorf("boots from %+v", device)
	}

	// It is up: a second step does nothing, and nothing is left to clear but the first one's entry.
	result, err = w.run("metal.ensureRamdisk", ``)
	wants(t, "up already", err, "", "")
	if string(result) != `{"bootId":"boot-1","role":"ramdisk","bootEntry":false}` || len(w.keys) != 3 {
		t.Errorf("result %s; sent %v", result, w.names())
	}
	for _, cleared := range []bool{true, false} {
		w.now = w.now.Add(time.Second)
		result, err = w.run("boot.clear", ``)
		wants(t, "clear", err, "", "")
		if want := fmt.Sprintf(`{"cleared":%t}`, cleared); string(result) != want {
			t.Errorf("result %s, want %s", result, want)
		}
	}
}

func TestAnOldRamdiskIsNoProof(t *testing.T) {
	// Its agent was heard of lately, but somebody has switched the machine off since.
	w := newWorld(t)
	w.node.Power = node.PowerOff
	w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: "old", OpenedAt: start.Add(-time.Hour), Connected: true}
	w.boots(0, time.Minute)
	result, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "off", err, "", "")
	if !strings.Contains(string(result), `"bootId":"boot-1"`) {
		t.Errorf("result %s", result)
	}

	// The old boot opens its session anew before the machine goes down: it is still the old boot.
	w = newWorld(t)
	w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: "old", OpenedAt: start.Add(-time.Hour)}
	w.tick = func() {
		w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: "old", OpenedAt: w.now, Connected: true}
	}
	_, err = w.run("metal.ensureRamdisk", ``)
	wants(t, "the old boot", err, fault.Timeout, "")

	// The installed OS is no ramdisk.
	w = newWorld(t)
	w.tick = func() {
		w.session = steps.Session{Role: agentcommand.RoleNode, BootID: "new", OpenedAt: w.now, Connected: true}
	}
	_, err = w.run("metal.ensureRamdisk", ``)
	wants(t, "the OS", err, fault.Timeout, "")
}

// An attempt that has cycled the machine in vain is followed by another one. The boot that it ended was heard of lately, but is
// no ramdisk any more.
func TestTheNextAttemptDoesNotTrustTheBootThatThisOneEnded(t *testing.T) {
	w := newWorld(t)
	w.node.Power = node.PowerOff // as the workflow before has left it
	w.session = steps.Session{Role: agentcommand.RoleRamdisk, BootID: "old", OpenedAt: start.Add(-time.Minute), Connected: true}
	_, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "no boot comes up", err, fault.Timeout, "")
	if w.node.Power != node.PowerOn {
		t.Errorf("the machine was cycled, and is %q", w.node.Power)
	}
	w.boots(0, time.Minute)
	result, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "again", err, "", "")
	if !strings.Contains(string(result), `"bootId":"boot-1"`) {
		t.Errorf("result %s", result)
	}
}

func TestAMachineThatBootsItsDiskIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.boots(1, 25*time.Minute)
	result, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "second round", err, "", "")
	if !strings.Contains(string(result), `"rounds":2`) || len(w.keys) != 6 {
		t.Errorf("result %s; sent %v", result, w.names())
	}
	if len(w.minted) != 2 { // the earlier token may have been spent
		t.Errorf("%d tokens for 2 boots", len(w.minted))
	}
	w = newWorld(t)
	w.boots(99, 3*time.Minute)
	_, err = w.run("metal.ensureRamdisk", ``)
	wants(t, "never", err, fault.Timeout, "")
	if len(w.keys) != 6 {
		t.Errorf("%d agent commands", len(w.keys))
	}
}

func TestARoundIsNotBegunWhileTheLastIsUnderWay(t *testing.T) {
	w := newWorld(t)
	healthy := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		if strings.Contains(s.Key, "power-cycle") {
			return "", nil
		}
		return healthy(s)
	}
	_, err := w.run("metal.ensureRamdisk", ``)
	wants(t, "stuck", err, fault.Timeout, "")
	if diff := cmp.Diff(intoRamdisk, w.names()); diff != "" {
		t.Errorf("agent commands:\n%s", diff)
	}
}

func TestBootEntryNeedsMACsAndAKernel(t *testing.T) {
	w := newWorld(t)
	w.node.MACs = nil
	_, err := w.run("boot.entry", ``)
	wants(t, "no MACs", err, fault.InvalidState, "")
	w = newWorld(t)
	w.config.Kernel = ""
	_, err = w.run("boot.entry", ``)
	wants(t, "no kernel", err, fault.InvalidConfig, "")
	w = newWorld(t)
	result, err := w.run("boot.entry", ``)
	wants(t, "entry", err, "", "")
	if !strings.Contains(string(result), `"joinTokenId":"jtk_`) || !strings.Contains(string(result), `"bootEntry":true`) {
		t.Errorf("result %s", result)
	}
	var entry agentcommand.BootEntry
	if w.payload(0, &entry); !entry.ExpiresAt.Equal(start.Add(2*time.Hour)) || w.minted[0].TTL != 2*time.Hour {
		t.Errorf("lives until %s, its token for %s", entry.ExpiresAt, w.minted[0].TTL)
	}
	_, err = w.run("boot.clear", ``)
	wants(t, "clear", err, "", "")
	if len(w.keys) != 2 {
		t.Errorf("sent %v", w.names())
	}
}

func TestEjectTakesNoRootFromARunningRamdisk(t *testing.T) {
	for name, test := range map[string]struct {
		session steps.Session
		want    []string
	}{
		"ramdisk": {steps.Session{Role: agentcommand.RoleRamdisk, Connected: true}, []string{"power.setPower", "virtual-media.eject"}},
		"OS":      {steps.Session{Role: agentcommand.RoleNode, Connected: true}, []string{"virtual-media.eject"}},
		"nothing": {steps.Session{}, []string{"virtual-media.eject"}},
	} {
		w := newWorld(t)
		w.session = test.session
		healthy := w.answer
		w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
			if strings.Contains(s.Key, "power-off") {
				w.session.Connected = false
			}
			return healthy(s)
		}
		_, err := w.run("media.eject", ``)
		wants(t, name, err, "", "")
		if diff := cmp.Diff(test.want, w.names()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestInsertFromAnEarlierStep(t *testing.T) {
	w := newWorld(t)
	_, err := w.run("media.insert", `{"fromStep":"autoinstall.renderIso"}`)
	wants(t, "no such step", err, fault.InvalidConfig, "")
	w = newWorld(t)
	_, err = w.run("media.insert", `{"url":"http://cache/first.iso"}`)
	wants(t, "insert", err, "", "")
	w.current().Action, w.current().Result = "autoinstall.renderIso", json.RawMessage(`{"url":"http://cache/x.iso","digest":"d"}`)
	_, err = w.run("media.insert", `{"fromStep":"autoinstall.renderIso"}`)
	wants(t, "from step", err, "", "")
	var ask agentcommand.Invoke
	w.payload(1, &ask)
	if string(ask.With) != `{"url":"http://cache/x.iso"}` {
		t.Errorf("asked with %s", ask.With)
	}
}

func TestWaitAgentJoined(t *testing.T) {
	w := newWorld(t)
	w.session = steps.Session{Role: agentcommand.RoleNode, BootID: "a", OpenedAt: start.Add(-time.Hour), Connected: true}
	_, err := w.run("wait.agentJoined", `{"role":"node"}`)
	wants(t, "there already, nobody restarted it", err, "", "")

	w = newWorld(t)
	w.session = steps.Session{Role: agentcommand.RoleNode, BootID: "a", OpenedAt: start.Add(-time.Hour), Connected: true}
	_, err = w.run("power.setPower", `{"action":"cycle"}`)
	wants(t, "cycle", err, "", "")
	cycled := w.now
	w.tick = func() {
		if w.now.Sub(cycled) > time.Minute {
			w.session = steps.Session{Role: agentcommand.RoleNode, BootID: "b", OpenedAt: w.now, Connected: true}
		}
	}
	result, err := w.run("wait.agentJoined", `{"role":"node"}`)
	wants(t, "after a cycle", err, "", "")
	if !strings.Contains(string(result), `"bootId":"b"`) {
		t.Errorf("result %s", result)
	}
}
