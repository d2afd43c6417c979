package steps_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/processmanagers/steps"
)

const mediumURL = "http://site/media/AB/ramdisk.iso"

// hasMedia lets the site's agent make an image for virtual drives of each boot entry.
func (w *world) hasMedia() {
	healthy := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		status, result := healthy(s)
		if s.Kind == agentcommand.BootEntrySet {
			result = agentcommand.BootEntryKept{MediumURL: mediumURL}
		}
		return status, result
	}
}

func (w *world) bootsByMedia(misses int) {
	w.boots(misses, time.Minute)
	w.hasMedia()
}

func TestRamdiskFromAVirtualDrive(t *testing.T) {
	w := newWorld(t)
	w.bootsByMedia(1)
	result, err := w.run("metal.ensureRamdisk", `{"device":"cd"}`)
	wants(t, "booted", err, "", "")
	round := []string{"boot.entry.set", "virtual-media.insert", "management.setBootDevice", "power.setPower"}
	if diff := cmp.Diff(append(round, round...), w.names()); diff != "" {
		t.Errorf("agent commands:\n%s", diff)
	}
	var ask agentcommand.Invoke
	if w.payload(1, &ask); string(ask.With) != `{"url":"`+mediumURL+`"}` {
		t.Errorf("inserts %s", ask.With)
	}
	if w.payload(2, &ask); string(ask.With) != `{"device":"cd"}` {
		t.Errorf("boots from %s", ask.With)
	}
	if strings.Contains(string(result), mediumURL) {
		t.Errorf("result %s", result)
	}
	result, err = w.run("boot.clear", ``)
	wants(t, "clear", err, "", "")
	if string(result) != `{"cleared":true,"ejected":true}` {
		t.Errorf("result %s", result)
	}
	if diff := cmp.Diff([]string{"boot.entry.clear", "virtual-media.eject"}, w.names()[8:]); diff != "" {
		t.Errorf("agent commands:\n%s", diff)
	}
	w.now = w.now.Add(time.Second)
	if result, err = w.run("boot.clear", ``); err != nil || string(result) != `{"cleared":false}` || len(w.keys) != 10 {
		t.Errorf("result %s, %v; sent %v", result, err, w.names())
	}
}

// What a failed step has put into the drive is taken out too; what the network has booted, no drive is asked for.
func TestClearEmptiesADriveThatWasFilled(t *testing.T) {
	w := newWorld(t)
	w.hasMedia()
	_, err := w.run("metal.ensureRamdisk", `{"device":"cd"}`)
	wants(t, "never up", err, fault.Timeout, "")
	result, err := w.run("boot.clear", ``)
	if wants(t, "clear", err, "", ""); !strings.Contains(string(result), `"ejected":true`) {
		t.Errorf("result %s", result)
	}
	w = newWorld(t)
	w.session = steps.Session{Role: agentcommand.RoleRamdisk, Connected: true, OpenedAt: start.Add(-time.Hour)}
	_, err = w.run("metal.ensureRamdisk", `{"device":"cd"}`)
	wants(t, "it runs already", err, "", "")
	result, err = w.run("boot.clear", ``)
	if wants(t, "clear", err, "", ""); string(result) != `{"cleared":false}` || len(w.keys) != 0 {
		t.Errorf("result %s; sent %v", result, w.names())
	}
	w = newWorld(t)
	w.bootsByMedia(0)
	_, err = w.run("metal.ensureRamdisk", `{"device":"network"}`)
	wants(t, "by network", err, "", "")
	result, err = w.run("boot.clear", ``)
	if wants(t, "clear", err, "", ""); string(result) != `{"cleared":true}` {
		t.Errorf("result %s", result)
	}
}

func TestASiteWithoutMedia(t *testing.T) {
	w := newWorld(t)
	w.boots(0, time.Minute)
	_, err := w.run("metal.ensureRamdisk", `{"device":"cd"}`)
	wants(t, "no medium", err, fault.InvalidConfig, "")
	if diff := cmp.Diff([]string{"boot.entry.set"}, w.names()); diff != "" {
		t.Errorf("agent commands:\n%s", diff)
	}
}

// A profile of one's own may take the image from boot.entry.
func TestInsertWhatABootEntryMade(t *testing.T) {
	w := newWorld(t)
	w.hasMedia()
	_, err := w.run("boot.entry", ``)
	wants(t, "entry", err, "", "")
	_, err = w.run("media.insert", `{"fromStep":"boot.entry"}`)
	wants(t, "insert", err, "", "")
	var ask agentcommand.Invoke
	if w.payload(1, &ask); string(ask.With) != `{"url":"`+mediumURL+`"}` {
		t.Errorf("inserts %s", ask.With)
	}
	w.now = w.now.Add(time.Second)
	at := *w // as it goes where the workflow takes the image out itself
	result, err := w.run("boot.clear", ``)
	if wants(t, "clear", err, "", ""); string(result) != `{"cleared":true,"ejected":true}` {
		t.Errorf("the image stays: %s; sent %v", result, w.names())
	}
	w = &at
	_, err = w.run("media.eject", ``)
	wants(t, "eject", err, "", "")
	result, err = w.run("boot.clear", ``)
	if wants(t, "clear after it", err, "", ""); string(result) != `{"cleared":true}` {
		t.Errorf("result %s", result)
	}
}

// What else a profile inserts is the profile's to take out.
func TestClearLeavesAMediumOfTheProfile(t *testing.T) {
	w := newWorld(t)
	w.hasMedia()
	_, err := w.run("boot.entry", ``)
	wants(t, "entry", err, "", "")
	_, err = w.run("media.insert", `{"url":"http://cache/installer.iso"}`)
	wants(t, "insert", err, "", "")
	result, err := w.run("boot.clear", ``)
	if wants(t, "clear", err, "", ""); string(result) != `{"cleared":true}` {
		t.Errorf("result %s", result)
	}
}
