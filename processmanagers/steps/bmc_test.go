package steps_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
)

func identified(w *world, who string) {
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Succeeded, agentcommand.Invoked{
			Result: json.RawMessage(who), Fingerprint: strings.Repeat("f1", 32), Quirks: json.RawMessage(`{"vendor":"dell"}`),
		}
	}
}

func TestVerifyLearnsWhatItSaw(t *testing.T) {
	w := newWorld(t)
	identified(w, `{"systemId":"System.Embedded.1","uuid":"4c4c4544-0042","serial":"S1","power":"on","health":"Critical"}`)
	result, err := w.run("bmc.verify", ``)
	wants(t, "verify", err, "", "")
	if !strings.Contains(string(result), `"uuid":"4c4c4544-0042"`) {
		t.Errorf("result: %s", result)
	}
	want := node.BMCLearned{Fingerprint: strings.Repeat("f1", 32), Quirks: json.RawMessage(`{"vendor":"dell"}`), System: "System.Embedded.1"}
	if diff := cmp.Diff(want, w.node.Learned); diff != "" {
		t.Errorf("learned:\n%s", diff)
	}
	if w.node.Power != node.PowerOn || len(w.events) != 3 {
		t.Errorf("power %s; events %v", w.node.Power, w.events)
	}

	// The next step hands all of it to the driver, with the certificate pinned, and learns nothing anew.
	_, err = w.run("bmc.identify", ``)
	wants(t, "identify", err, "", "")
	var ask agentcommand.Invoke
	w.payload(1, &ask)
	var trust node.TLSPolicy
	w.decode(ask.BMC.TLS, &trust)
	if trust.Fingerprint != want.Fingerprint || ask.BMC.System != want.System || string(ask.BMC.Quirks) != string(want.Quirks) ||
		ask.Driver != "redfish" || ask.BMC.CredentialsRef != secretRef || ask.BMC.Address != w.node.BMC.Address {
		t.Errorf("asked: %+v, trusting %+v", ask, trust)
	}
	if len(w.events) != 3 {
		t.Errorf("events: %v", w.events)
	}
}

func TestACertificateThatChangedHoldsTheNode(t *testing.T) {
	w := newWorld(t)
	w.node.Learned.Fingerprint = strings.Repeat("00", 32)
	identified(w, `{"systemId":"1"}`)
	_, err := w.run("bmc.verify", ``)
	wants(t, "another certificate", err, fault.DriverError, "certificate-changed")

	w = newWorld(t)
	w.node.BMC.TLS = node.TLSPolicy{Mode: node.TLSInsecure}
	identified(w, `{"systemId":"1"}`)
	_, err = w.run("bmc.verify", ``)
	wants(t, "no trust asked for", err, "", "")
	if w.node.Learned.Fingerprint != "" {
		t.Error("a fingerprint was pinned that nobody asked to trust")
	}
}

func TestAnotherMachineBehindTheBMC(t *testing.T) {
	known := &node.Hardware{UUID: "AA-1", Serial: "S1"}
	for name, test := range map[string]struct{ who, reason string }{
		"the same":            {`{"systemId":"1","uuid":"aa-1","serial":"S1"}`, ""},
		"a new board":         {`{"systemId":"1","uuid":"bb-2","serial":"S1"}`, ""},
		"another":             {`{"systemId":"1","uuid":"bb-2","serial":"S2"}`, "machine-changed"},
		"another, no serial":  {`{"systemId":"1","uuid":"bb-2"}`, "machine-changed"},
		"tells nothing":       {`{"systemId":"1"}`, ""},
		"tells what it makes": {`{"systemId":"1","uuid":"0000","weak":["uuid"]}`, ""},
	} {
		w := newWorld(t)
		w.node.Hardware.OutOfBand = known
		identified(w, test.who)
		_, err := w.run("bmc.verify", ``)
		code := fault.Code("")
		if test.reason != "" {
			code = fault.DriverError
		}
		wants(t, name, err, code, test.reason)
	}
}

// An update of a controller's firmware may name the machine's system anew. The machine is found by its serial number then, and by
// nothing that could be another's.
func TestASystemThatWasRenamed(t *testing.T) {
	for name, test := range map[string]struct {
		hardware *node.Hardware
		is       string // the serial number of the only system
		code     fault.Code
		asked    string
	}{
		"renamed":           {&node.Hardware{Serial: "S1", UUID: "u"}, "S1", "", "1 S1"},
		"renamed, by UUID":  {&node.Hardware{UUID: "S1"}, "S1", "", "1 S1"},
		"another machine":   {&node.Hardware{Serial: "S1"}, "S2", fault.DriverError, "1 S1"},
		"never seen before": {nil, "S1", fault.DriverError, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node.Learned.System, w.node.Hardware.OutOfBand = "1", test.hardware
			var asked []string
			w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
				var ask agentcommand.Invoke
				w.decode(s.Payload, &ask)
				asked = append(asked, ask.BMC.System)
				if ask.BMC.System == test.is {
					return agentcommand.Succeeded, w.driver(s)
				}
				w.commands[s.Key].Details = json.RawMessage(`{"reason":"system-not-found"}`)
				return agentcommand.Failed, nil
			}
			_, err := w.run("power.setPower", `{"action":"on"}`)
			wants(t, "power", err, test.code, "")
			if got := strings.Join(asked, " "); got != test.asked {
				t.Errorf("the systems that were asked for: %s", got)
			}
			if w.node.Learned.System != "1" {
				t.Errorf("learned %+v", w.node.Learned)
			}
		})
	}
}

func TestVerifyLearnsANewNameOfTheSystem(t *testing.T) {
	w := newWorld(t)
	w.node.Learned.System, w.node.Hardware.OutOfBand = "1", &node.Hardware{Serial: "S1"}
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		var ask agentcommand.Invoke
		if w.decode(s.Payload, &ask); ask.BMC.System == "1" {
			w.commands[s.Key].Details = json.RawMessage(`{"reason":"system-not-found"}`)
			return agentcommand.Failed, nil
		}
		return agentcommand.Succeeded, agentcommand.Invoked{Result: json.RawMessage(`{"systemId":"Self","serial":"S1","power":"on"}`)}
	}
	_, err := w.run("bmc.verify", ``)
	wants(t, "verify", err, "", "")
	if w.node.Learned.System != "Self" {
		t.Errorf("learned %+v", w.node.Learned)
	}
}

func TestAgentCommandsThatFail(t *testing.T) {
	for _, status := range []agentcommand.Status{agentcommand.Failed, agentcommand.Rejected, agentcommand.Expired, agentcommand.Cancelled} {
		w := newWorld(t)
		w.answer = func(s agentcommand.State) (agentcommand.Status, any) { return status, nil }
		_, err := w.run("bmc.identify", ``)
		wants(t, string(status), err, fault.DriverError, "")
	}
	refused := steps.Refusal(agentcommand.State{
		Requested: agentcommand.Requested{Kind: agentcommand.DriverInvoke}, Status: agentcommand.Failed, Reason: "no login",
		Code: "DRIVER_ERROR", Details: json.RawMessage(`{"reason":"credentials-rejected"}`),
	})
	text, err := json.Marshal(refused.Details)
	if err != nil || !strings.Contains(string(text), "credentials-rejected") || refused.Details["code"] != "DRIVER_ERROR" ||
		refused.Details["state"] != "failed" || !strings.Contains(refused.Message, "no login") {
		t.Errorf("%+v %s", refused, text)
	}
}

func TestNothingIsSentWithoutASiteAgent(t *testing.T) {
	w := newWorld(t)
	w.siteUp = false
	w.begin("bmc.identify", ``, 0)
	_, err := w.pass()
	if _, waits := steps.IsNotReady(err); !waits || len(w.keys) != 0 {
		t.Fatalf("%v; sent %v", err, w.names())
	}
	w.siteUp = true
	if _, err := w.finish(); err != nil || len(w.keys) != 1 {
		t.Fatalf("%v; sent %v", err, w.names())
	}
}

func TestStepsWithoutWhatTheyNeed(t *testing.T) {
	for _, action := range designed {
		step := shippedStep(t, action)
		if step.Run == nil {
			continue
		}
		w := newWorld(t)
		w.noPorts = true
		with := map[string]string{
			"power.setPower": `{"action":"on"}`, "management.setBootDevice": `{"device":"disk"}`, "media.insert": `{"url":"http://a/b"}`,
			"wait.agentJoined": `{"role":"node"}`, "wait.observed": `{"power":"on"}`, "http.viaSite": `{"url":"http://a/"}`,
			"image.resolve": `{"image":"a@1"}`,
		}[action]
		_, err := w.run(action, with)
		if action == "deploy.deploy" { // the machine's state comes first
			wants(t, action, err, fault.InvalidState, "")
			continue
		}
		wants(t, action, err, fault.InvalidConfig, "")
	}
	w := newWorld(t)
	w.node.BMC = nil
	_, err := w.run("bmc.verify", ``)
	wants(t, "no BMC", err, fault.InvalidState, "")
}

func TestUndeclaredKinds(t *testing.T) {
	w := newWorld(t)
	w.begin("bmc.identify", ``, 0)
	w.current().Sends = nil
	_, err := w.pass()
	wants(t, "undeclared", err, fault.InvalidConfig, "")
}

func TestAProfileBindsDrivers(t *testing.T) {
	w := newWorld(t)
	w.profile.Drivers = map[string]string{"power": "ipmi"}
	_, err := w.run("power.setPower", `{"action":"graceful","force":true,"graceful":"90s"}`)
	wants(t, "power", err, "", "")
	var ask agentcommand.Invoke
	w.payload(0, &ask)
	if ask.Driver != "ipmi" || string(ask.With) != `{"action":"graceful","graceful":90,"force":true}` {
		t.Errorf("asked %s with %s", ask.Driver, ask.With)
	}
	if w.node.Power != node.PowerOff {
		t.Errorf("power %q", w.node.Power)
	}
}

func TestOffIsWhatWasObserved(t *testing.T) {
	w := newWorld(t)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Succeeded, agentcommand.Invoked{Result: json.RawMessage(`{"power":"on"}`)}
	}
	_, err := w.run("power.setPower", `{"action":"off"}`)
	wants(t, "still on", err, fault.DriverError, "power-not-reached")
}

func TestWaitObserved(t *testing.T) {
	w := newWorld(t)
	_, err := w.run("power.setPower", `{"action":"off"}`)
	wants(t, "off", err, "", "")
	_, err = w.run("wait.observed", `{"power":"off"}`)
	wants(t, "just observed", err, "", "")
	if len(w.keys) != 1 {
		t.Errorf("asked again: %v", w.names())
	}

	w = newWorld(t)
	at := start.Add(4 * time.Minute)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		power := node.PowerOn
		if w.now.After(at) {
			power = node.PowerOff
		}
		return agentcommand.Succeeded, agentcommand.Invoked{Result: raw(map[string]any{"power": power})}
	}
	_, err = w.run("wait.observed", `{"power":"off"}`)
	wants(t, "in the end", err, "", "")
	if took := w.now.Sub(start); took < 4*time.Minute || took > 8*time.Minute || len(w.keys) > 10 {
		t.Errorf("took %s and %d looks", took, len(w.keys))
	}
	w = newWorld(t)
	_, err = w.run("wait.observed", `{"power":"off"}`)
	wants(t, "never", err, fault.Timeout, "")
}

// A step that runs again finds its earlier agent commands, and learns from them once.
func TestLearningHappensOnce(t *testing.T) {
	w := newWorld(t)
	n := 0
	healthy := w.answer
	w.answer = func(s agentcommand.State) (agentcommand.Status, any) {
		status, result := healthy(s)
		if told, ok := result.(agentcommand.Invoked); ok {
			n++
			told.Quirks = raw(map[string]int{"learned": n})
			result = told
		}
		return status, result
	}
	w.begin("metal.ensureRamdisk", ``, 0)
	for range 20 {
		_, err := w.pass()
		if _, waits := steps.IsNotReady(err); !waits {
			t.Fatal(err)
		}
		w.settle()
	}
	if string(w.node.Learned.Quirks) != `{"learned":2}` || len(w.events) != 3 {
		t.Errorf("learned %s with events %v", w.node.Learned.Quirks, w.events)
	}
}
