package steps_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

// says has every agent command succeed with a result.
func (w *world) says(result string) {
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Succeeded, json.RawMessage(result)
	}
}

var twoDisks = &node.Hardware{Disks: []node.Disk{{WWN: "1"}, {WWN: "2"}}}

const bothWiped = `{"disks":[{"disk":{"wwn":"1"},"method":"quick","readBack":true},{"disk":{"wwn":"2"},"method":"secure-erase","readBack":true}]}`

func TestWipeMethodIsTheOperators(t *testing.T) {
	for name, test := range map[string]struct {
		state node.ProvisionState
		asked node.WipeMethod
		with  string
		want  string
		code  fault.Code
	}{
		"nothing said":             {node.Commissioning, "", ``, "quick", ""},
		"the profile":              {node.Commissioning, "", `{"method":"secure-erase"}`, "secure-erase", ""},
		"the operator":             {node.Releasing, node.WipeQuick, `{"method":"secure-erase"}`, "quick", ""},
		"retired":                  {node.Retiring, node.WipeCryptoErase, ``, "crypto-erase", ""},
		"asked in an earlier life": {node.Commissioning, node.WipeSecureErase, ``, "quick", ""},
		"none":                     {node.Releasing, node.WipeNone, ``, "", fault.InvalidState},
		"deploying":                {node.Deploying, "", ``, "quick", ""},
		"deployed":                 {node.Deployed, "", ``, "", fault.InvalidState},
		"rescue":                   {node.Rescue, "", ``, "", fault.InvalidState},
		"ready":                    {node.Ready, "", ``, "", fault.InvalidState},
	} {
		w := newWorld(t)
		w.node.Provision, w.node.ReleaseWipe = test.state, test.asked
		w.begin("disk.wipe", test.with, 0)
		_, err := w.pass()
		if _, waits := steps.IsNotReady(err); waits {
			err = nil
		}
		wants(t, name, err, test.code, "")
		if test.code != "" {
			if len(w.keys) > 0 {
				t.Errorf("%s: a wipe was sent", name)
			}
			continue
		}
		var ask agentcommand.WipeDisks
		if w.payload(0, &ask); ask.Method != test.want {
			t.Errorf("%s: asked for %s", name, ask.Method)
		}
	}
}

// Whether a disk with a filesystem of many machines is one machine's alone, the profile says, and nothing else.
func TestWhatIsSharedIsSaid(t *testing.T) {
	for with, want := range map[string]bool{``: false, `{"shared": true}`: true} {
		w := newWorld(t)
		w.node.Provision = node.Commissioning
		w.begin("disk.wipe", with, 0)
		if _, err := w.pass(); err != nil {
			if _, waits := steps.IsNotReady(err); !waits {
				t.Fatal(err)
			}
		}
		var ask agentcommand.WipeDisks
		if w.payload(0, &ask); ask.Shared != want {
			t.Errorf("%s: %+v", with, ask)
		}
	}
}

func TestAWipeIsBelievedWhenItIsProven(t *testing.T) {
	for name, test := range map[string]struct {
		result   string
		known    *node.Hardware
		unsigned bool
		state    node.ProvisionState
		asked    node.WipeMethod
		code     fault.Code
		recorded bool
	}{
		"proven":        {bothWiped, twoDisks, false, node.Releasing, node.WipeQuick, "", true},
		"not signed":    {bothWiped, twoDisks, true, node.Releasing, node.WipeQuick, fault.UnverifiedWipe, false},
		"weaker":        {bothWiped, twoDisks, false, node.Releasing, node.WipeSecureErase, fault.UnverifiedWipe, true},
		"a disk failed": {strings.Replace(bothWiped, "true", "false", 1), twoDisks, false, node.Releasing, node.WipeQuick, fault.UnverifiedWipe, true},
		"a disk is missing": {`{"disks":[{"disk":{"wwn":"1"},"method":"quick","readBack":true}]}`, twoDisks, false, node.Releasing,
			node.WipeQuick, fault.UnverifiedWipe, true},
		"a USB stick": {strings.Replace(bothWiped, `{"disks":[`, `{"disks":[{"disk":{"wwn":"usb"},"method":"none","readBack":false,"reason":"removable"},`, 1),
			twoDisks, false, node.Releasing, node.WipeQuick, "", true},
		"left alone, listed": {strings.Replace(bothWiped, `"method":"quick","readBack":true`, `"method":"none","readBack":false`, 1), twoDisks, false,
			node.Releasing, node.WipeQuick, fault.UnverifiedWipe, true},
		"before a deploy": {bothWiped, twoDisks, false, node.Deploying, "", "", false},
		"nonsense":        {`[]`, twoDisks, false, node.Releasing, node.WipeQuick, fault.DriverError, false},
	} {
		w := newWorld(t)
		w.unsigned, w.session.BootID = test.unsigned, "boot-7"
		w.node.Provision, w.node.ReleaseWipe, w.node.Hardware.InBand = test.state, test.asked, test.known
		w.says(test.result)
		_, err := w.run("disk.wipe", ``)
		wants(t, name, err, test.code, "")
		if (w.node.Wipe != nil) != test.recorded {
			t.Errorf("%s: recorded %+v", name, w.node.Wipe)
		}
		if test.recorded && (w.node.Wipe.Certificate != "cert" || w.node.Wipe.BootID != "boot-7" || !w.node.Wipe.Signed ||
			w.node.Wipe.Method != test.asked || w.node.Wipe.AgentCommand != agentcommand.IDOf(w.keys[0])) {
			t.Errorf("%s: %+v", name, w.node.Wipe)
		}
		if verified := w.node.WipeVerified(); test.code == "" && test.recorded && !verified {
			t.Errorf("%s: the node does not believe it", name)
		}
	}
}

func TestAWipeThatTheAgentCouldNotProve(t *testing.T) {
	w := newWorld(t)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Failed, json.RawMessage(bothWiped)
	}
	_, err := w.run("disk.wipe", ``)
	wants(t, "failed", err, fault.UnverifiedWipe, "")
	w = newWorld(t)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) { return agentcommand.Expired, nil }
	_, err = w.run("disk.wipe", ``)
	wants(t, "expired", err, fault.DriverError, "")
}

func TestBurnin(t *testing.T) {
	w := newWorld(t)
	w.says(`{"parts":[{"name":"cpu0","tookSeconds":90,"errors":0}]}`)
	_, err := w.run("burnin.cpu", `{"duration":"90s"}`)
	wants(t, "fine", err, "", "")
	var ask agentcommand.Burnin
	if w.payload(0, &ask); ask.Duration.Duration() != 90*time.Second {
		t.Errorf("asked for %v", ask)
	}
	w.says(`{"parts":[{"name":"memory","tookSeconds":90,"errors":2}]}`)
	_, err = w.run("burnin.memory", `{"bytes":1024}`)
	wants(t, "errors", err, fault.DriverError, "part-failed")
	w.unsigned = true
	w.says(`{"parts":[]}`)
	_, err = w.run("burnin.gpu", ``)
	wants(t, "not signed", err, fault.DriverError, "not-attested")
	w.node.Provision, w.unsigned = node.Deploying, false
	_, err = w.run("burnin.disk", ``)
	wants(t, "where data may be", err, fault.InvalidState, "")
}

func TestInspections(t *testing.T) {
	w := newWorld(t)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Succeeded, agentcommand.Invoked{
			Result: json.RawMessage(`{"hardware":{"product":"R750","cores":64},"notes":["no NICs"],"sources":{"nics":"absent"}}`),
		}
	}
	result, err := w.run("inspect.outOfBand", ``)
	wants(t, "out of band", err, "", "")
	if w.node.Hardware.OutOfBand.Cores != 64 || !strings.Contains(string(result), `"notes":["no NICs"]`) {
		t.Errorf("%+v, %s", w.node.Hardware.OutOfBand, result)
	}
	w.says(`{"product":"R750","cores":64,"disks":[{"wwn":"1"}]}`)
	result, err = w.run("inspect.hardware", ``)
	wants(t, "in band", err, "", "")
	if len(w.node.Hardware.InBand.Disks) != 1 || !strings.Contains(string(result), `"disks":1`) {
		t.Errorf("%+v, %s", w.node.Hardware.InBand, result)
	}
}

// A disk that dropped out while a tenant had the machine is full of the tenant's data, and comes back one day: an inventory
// without it must not take the place of the one with it when the disks are about to be wiped.
func TestADiskThatIsGoneIsMissed(t *testing.T) {
	const both = `[{"wwn":"1"},{"model":"M","serial":"s2"},{"path":"/dev/vda"}]`
	const twins = `[{"wwn":"1","serial":"s"},{"wwn":"2","serial":"s"}]`
	for name, c := range map[string]struct {
		before, found string
		state         node.ProvisionState
		want          fault.Code
	}{
		"all there":                   {both, both, node.Releasing, ""},
		"one more":                    {both, `[{"wwn":"1"},{"serial":"s2"},{"serial":"s3"},{"path":"/dev/vdb"}]`, node.Releasing, ""},
		"told by other names too":     {both, `[{"wwn":"1"},{"wwn":"2","serial":"S2"},{"wwn":"3","path":"/dev/vda"}]`, node.Releasing, ""},
		"one that has no name":        {both, `[{"wwn":"1"},{"model":"M","serial":"S2"}]`, node.Releasing, fault.UnverifiedWipe},
		"another of no name":          {both, `[{"wwn":"1"},{"serial":"s2"},{"path":"/dev/vda","bytes":512}]`, node.Releasing, fault.UnverifiedWipe},
		"one of two of one name":      {twins, `[{"wwn":"2","serial":"s"},{"wwn":"9","serial":"t"}]`, node.Releasing, fault.UnverifiedWipe},
		"two of one name":             {twins, `[{"wwn":"2","serial":"s"},{"wwn":"1","serial":"s"}]`, node.Releasing, ""},
		"one way of two to a disk":    {`[{"wwn":"1"},{"wwn":"1"}]`, `[{"wwn":"1"}]`, node.Releasing, fault.UnverifiedWipe},
		"one is gone":                 {both, `[{"wwn":"1"}]`, node.Releasing, fault.UnverifiedWipe},
		"the other is gone":           {both, `[{"serial":"s2"}]`, node.Retiring, fault.UnverifiedWipe},
		"all are gone":                {both, `[]`, node.Releasing, fault.UnverifiedWipe},
		"the operator has it counted": {both, `[{"wwn":"1"}]`, node.Inspecting, ""},
		"there is nothing to lose":    {both, `[{"wwn":"1"}]`, node.Commissioning, ""},
		"nothing known of before":     {"", `[{"wwn":"1"}]`, node.Releasing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node.Provision, w.node.Hardware.InBand = c.state, nil
			if c.before != "" {
				w.node.Hardware.InBand = &node.Hardware{}
				if err := json.Unmarshal([]byte(c.before), &w.node.Hardware.InBand.Disks); err != nil {
					t.Fatal(err)
				}
			}
			w.says(`{"disks":` + c.found + `}`)
			_, err := w.run("inspect.hardware", ``)
			wants(t, name, err, c.want, "")
			want := c.found
			if c.want != "" {
				want = c.before
			}
			var disks []node.Disk
			if err := json.Unmarshal([]byte(want), &disks); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(disks, w.node.Hardware.InBand.Disks); diff != "" {
				t.Errorf("the inventory on record: %s", diff)
			}
		})
	}
}

// A machine that has lost a disk may be rescued all the same; the disk is missed at the release.
func TestADiskThatIsGoneIsNotForgottenByARescue(t *testing.T) {
	for _, state := range []node.ProvisionState{node.Rescue, node.Deploying} {
		w := newWorld(t)
		w.node.Provision, w.node.Hardware = state, node.Inventories{InBand: twoDisks, OutOfBand: twoDisks}
		w.says(`{"disks":[{"wwn":"1"}],"driverless":["0000:01:00.0"]}`)
		_, err := w.run("inspect.hardware", ``)
		wants(t, string(state), err, "", "")
		w.node.Provision = node.Releasing
		w.says(`{"disks":[{"wwn":"1"}]}`)
		_, err = w.run("inspect.hardware", ``)
		wants(t, "at the release", err, fault.UnverifiedWipe, "")
	}
}

// After an undeploy without a wipe the disks are full of the tenant's data: it is the commissioning that empties them.
func TestADiskThatIsGoneIsMissedAfterAReleaseWithoutAWipe(t *testing.T) {
	for asked, want := range map[node.WipeMethod]fault.Code{node.WipeNone: fault.UnverifiedWipe, "": ""} {
		w := newWorld(t)
		w.node.Provision, w.node.ReleaseWipe, w.node.Hardware.InBand = node.Commissioning, asked, twoDisks
		w.says(`{"disks":[{"wwn":"1"}]}`)
		_, err := w.run("inspect.hardware", ``)
		wants(t, string(asked), err, want, "")
	}
}

// What nobody sees nobody wipes: a ramdisk without the driver of a controller finds fewer disks than there are, or none.
func TestAMachineWhoseDisksTheRamdiskDoesNotSee(t *testing.T) {
	none, noDriver := &node.Hardware{}, &node.Hardware{Disks: []node.Disk{{WWN: "1"}}, Driverless: []string{"0000:01:00.0"}}
	told := func(why string) *node.Failure {
		return &node.Failure{Code: "UNVERIFIED_WIPE", Message: "inspect (inspect.hardware): the ramdisk " + why + "; it sees 1, and the BMC tells of 2"}
	}
	const one, some = `{"disks":[{"wwn":"1"}]}`, `{"disks":[{"wwn":"1"}],"driverless":["0000:01:00.0"]}`
	for name, c := range map[string]struct {
		outside, before *node.Hardware
		found           string
		answered        *node.Failure
		want            fault.Code
	}{
		"the BMC sees them":       {twoDisks, nil, `{}`, nil, fault.UnverifiedWipe},
		"so did another ramdisk":  {twoDisks, twoDisks, `{}`, nil, fault.UnverifiedWipe},
		"it sees one":             {twoDisks, nil, one, nil, ""},
		"it never had any":        {twoDisks, none, `{}`, nil, ""},
		"the BMC sees none":       {none, nil, `{}`, nil, ""},
		"the BMC is not asked":    {nil, nil, `{}`, nil, ""},
		"the operator knows":      {twoDisks, nil, `{}`, told("sees no disk"), ""},
		"a driver is missing":     {twoDisks, nil, some, nil, fault.UnverifiedWipe},
		"it was not before":       {twoDisks, twoDisks, some, nil, fault.UnverifiedWipe},
		"it was missing before":   {twoDisks, noDriver, some, nil, ""},
		"another one is missing":  {twoDisks, noDriver, strings.Replace(some, "01:", "02:", 1), nil, fault.UnverifiedWipe},
		"no disk is behind it":    {&node.Hardware{Disks: twoDisks.Disks[:1]}, nil, some, nil, ""},
		"the operator knows that": {twoDisks, nil, some, told("has no driver for the controllers of disks at 0000:01:00.0"), ""},
		"and not that":            {twoDisks, nil, some, told("sees no disk"), fault.UnverifiedWipe},
	} {
		w := newWorld(t)
		w.node.Provision, w.node.Answered = node.Inspecting, c.answered
		w.node.Hardware = node.Inventories{OutOfBand: c.outside, InBand: c.before}
		w.says(c.found)
		_, err := w.run("inspect.hardware", ``)
		wants(t, name, err, c.want, "")
	}
}

// An operator who recovers or retires a node after a disk was missed goes on without that disk, and no other.
func TestADiskThatWasTakenOut(t *testing.T) {
	for name, c := range map[string]struct {
		answered *node.Failure
		want     fault.Code
	}{
		"known":           {&node.Failure{Code: "UNVERIFIED_WIPE", Message: "inspect: of the last inventory disk wwn:2 is not in the machine any more"}, ""},
		"another":         {&node.Failure{Code: "UNVERIFIED_WIPE", Message: "inspect: of the last inventory disk wwn:22 is not in the machine any more"}, fault.UnverifiedWipe},
		"another failure": {&node.Failure{Code: "REJOIN_TIMEOUT", Message: "disk wwn:2 is not in the machine any more"}, fault.UnverifiedWipe},
		"none":            {nil, fault.UnverifiedWipe},
	} {
		w := newWorld(t)
		w.node.Provision, w.node.Answered = node.Releasing, c.answered
		w.node.Hardware.InBand = &node.Hardware{Disks: []node.Disk{{WWN: "1"}, {WWN: "2"}}}
		w.says(`{"disks":[{"wwn":"1"}]}`)
		_, err := w.run("inspect.hardware", ``)
		wants(t, name, err, c.want, "")
	}
}

// A second disk may drop out once the first was answered: the next answer is to both.
func TestDisksThatDropOutOneByOne(t *testing.T) {
	w := newWorld(t)
	w.node.Provision, w.node.Hardware.InBand = node.Releasing, &node.Hardware{Disks: []node.Disk{{WWN: "1"}, {WWN: "2"}, {WWN: "3"}}}
	for _, found := range []string{`{"disks":[{"wwn":"1"},{"wwn":"2"}]}`, `{"disks":[{"wwn":"1"}]}`} {
		w.says(found)
		_, err := w.run("inspect.hardware", ``)
		wants(t, "missed", err, fault.UnverifiedWipe, "")
		w.node.Answered = &node.Failure{Code: string(fault.UnverifiedWipe), Message: err.Error()}
	}
	_, err := w.run("inspect.hardware", ``)
	wants(t, "both are answered", err, "", "")
}

// All disks may be taken out at once: one answer is to everything that the inventory lacks.
func TestOneAnswerIsToEverything(t *testing.T) {
	for _, found := range []string{`{}`, `{"disks":[{"wwn":"1"}],"driverless":["0000:01:00.0"]}`} {
		w := newWorld(t)
		w.node.Provision, w.node.Hardware = node.Releasing, node.Inventories{InBand: twoDisks, OutOfBand: twoDisks}
		w.says(found)
		_, err := w.run("inspect.hardware", ``)
		wants(t, found, err, fault.UnverifiedWipe, "")
		w.node.Answered = &node.Failure{Code: string(fault.UnverifiedWipe), Message: err.Error()}
		_, err = w.run("inspect.hardware", ``)
		wants(t, found+", answered", err, "", "")
	}
}

// A shelf of a hundred disks is more than the text of a failure holds: the operator's answer is to all of them, and to no others.
func TestAShelfThatWasTakenOut(t *testing.T) {
	w := newWorld(t)
	before := &node.Hardware{Disks: []node.Disk{{WWN: "1"}}}
	for i := range 106 {
		before.Disks = append(before.Disks, node.Disk{WWN: fmt.Sprintf("t10.ATA     a model with a long name                    S%08d", i)})
	}
	found := func(also int) string {
		text, err := json.Marshal(node.Hardware{Disks: before.Disks[:1+also]})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	w.node.Provision, w.node.Hardware.InBand = node.Releasing, before
	w.says(found(0))
	_, err := w.run("inspect.hardware", ``)
	wants(t, "missed", err, fault.UnverifiedWipe, "")
	message := fault.Bounded("inspect (inspect.hardware): "+err.Error(), node.MaxError)
	w.node.Answered = &node.Failure{Code: string(fault.UnverifiedWipe), Message: message}
	w.says(found(1))
	_, err = w.run("inspect.hardware", ``)
	wants(t, "others are missing now", err, fault.UnverifiedWipe, "")
	w.says(found(0))
	_, err = w.run("inspect.hardware", ``)
	wants(t, "answered", err, "", "")
}

func (w *world) deploying() {
	w.node.Provision = node.Deploying
	w.profile = profile.Document{Image: "ubuntu@24.04", UserData: &profile.UserData{Kind: "cloud-init"}}
	w.images["ubuntu@24.04"] = steps.Image{
		ID: id.Of[id.Image](uuid.UUID{15: 6}), Name: "ubuntu@24.04", URL: "https://images/u.raw.zst",
		Digest: "sha256:" + strings.Repeat("ab", 32), Format: "raw.zst", Bytes: 9, Signature: []byte{1}, Signer: "PEM",
	}
}

// The token that is written to the disk is good when the installed OS wants to join: however long the image takes, and also where
// an operator goes on with the workflow on another day.
func TestTheTokenOutlivesTheDeploy(t *testing.T) {
	w := newWorld(t)
	w.deploying()
	w.says(`{"disk":"wwn:1","digest":"sha256:` + strings.Repeat("ab", 32) + `","bytes":100}`)
	_, err := w.run("image.resolve", ``)
	wants(t, "resolve", err, "", "")
	w.begin("userdata.render", ``, 0)
	w.begin("deploy.deploy", ``, 0)
	render, write := &w.flow.Steps[1], &w.flow.Steps[2]
	write.State, write.Retries = workflow.StepPending, 1
	result, err := w.passOf(1)
	wants(t, "render", err, "", "")
	if ttl := w.minted[0].TTL; ttl < 6*time.Hour || ttl > 7*time.Hour {
		t.Errorf("a token for a deploy that may take four hours is good for %v", ttl)
	}
	render.State, render.Result = workflow.StepSucceeded, raw(result)
	for name, test := range map[string]struct {
		after  time.Duration
		minted int
	}{"at once": {time.Minute, 1}, "by another attempt": {2*time.Hour + time.Minute, 1}, "on another day": {20 * time.Hour, 2}} {
		t.Run(name, func(t *testing.T) {
			w := *w
			w.t, w.keys, w.commands, w.minted = t, nil, map[string]*agentcommand.State{}, slices.Clone(w.minted)
			w.flow.Steps = slices.Clone(w.flow.Steps)
			w.now = w.now.Add(test.after)
			at := w.current()
			at.State, at.StartedAt, at.Deadline = workflow.StepRunning, w.now, w.now.Add(at.Timeout)
			_, err := w.finish()
			wants(t, "deploy", err, "", "")
			var ask agentcommand.WriteImage
			w.payload(0, &ask)
			document, newest := w.secrets[ask.UserDataRef], fmt.Sprintf("%s-%d", theToken, test.minted)
			if len(w.minted) != test.minted || !strings.Contains(document, newest) {
				t.Errorf("%d tokens were minted; the document is %s", len(w.minted), document)
			}
		})
	}
}

func TestDeploy(t *testing.T) {
	w := newWorld(t)
	w.deploying()
	_, err := w.run("deploy.deploy", ``)
	wants(t, "no image yet", err, fault.InvalidConfig, "")
	_, err = w.run("image.resolve", ``)
	wants(t, "resolve", err, "", "")
	_, err = w.run("deploy.deploy", ``)
	wants(t, "no user data yet", err, fault.InvalidConfig, "")
	rendered, err := w.run("userdata.render", ``)
	wants(t, "render", err, "", "")
	w.says(`{"disk":"wwn:1","path":"/dev/sda","digest":"sha256:` + strings.Repeat("ab", 32) + `","bytes":100,"readBack":true}`)
	result, err := w.run("deploy.deploy", `{"disk":{"serial":"S1"},"readBack":true}`)
	wants(t, "deploy", err, "", "")
	if !strings.Contains(string(result), `"disk":"wwn:1"`) || !strings.Contains(string(result), `"imageId":"img_`) {
		t.Errorf("result %s", result)
	}
	var ask agentcommand.WriteImage
	w.payload(0, &ask)
	var data struct{ UserDataRef string }
	w.decode(rendered, &data)
	want := agentcommand.WriteImage{
		URL: "https://images/u.raw.zst", Digest: "sha256:" + strings.Repeat("ab", 32), Format: "raw.zst", Bytes: 9,
		Signature: []byte{1}, Signer: "PEM", Disk: agentcommand.RootDisk{Serial: "S1"}, UserDataRef: data.UserDataRef,
		UserData: "cloud-init", Hostname: strings.ReplaceAll(w.node.ID.String(), "_", "-"), ReadBack: true,
	}
	if diff := cmp.Diff(want, ask); diff != "" {
		t.Errorf("asked:\n%s", diff)
	}

	w.says(`{}`)
	w.begin("boot.kexec", ``, 0)
	_, _ = w.pass()
	var kexec agentcommand.Kexec
	if w.payload(1, &kexec); kexec.Disk != "wwn:1" {
		t.Errorf("starts %+v", kexec)
	}
}

func TestAWriteIsBelievedWhenItIsProven(t *testing.T) {
	for reason, test := range map[string]struct {
		unsigned bool
		result   string
	}{
		"not-attested":   {true, `{"digest":"sha256:` + strings.Repeat("ab", 32) + `","readBack":true}`},
		"digest-differs": {false, `{"digest":"sha256:` + strings.Repeat("cd", 32) + `","readBack":true}`},
		"not-read-back":  {false, `{"digest":"sha256:` + strings.Repeat("ab", 32) + `"}`},
		"bad-answer":     {false, `[]`},
	} {
		w := newWorld(t)
		w.deploying()
		w.profile.UserData = nil
		_, err := w.run("image.resolve", ``)
		wants(t, "resolve", err, "", "")
		w.unsigned = test.unsigned
		w.says(test.result)
		_, err = w.run("deploy.deploy", `{"readBack":true}`)
		wants(t, reason, err, fault.DriverError, reason)
	}
	w := newWorld(t)
	w.deploying()
	w.node.Provision = node.Deployed
	_, err := w.run("deploy.deploy", ``)
	wants(t, "deployed", err, fault.InvalidState, "")
}

func TestImagesThatAreNotThere(t *testing.T) {
	w := newWorld(t)
	_, err := w.run("image.resolve", ``)
	wants(t, "none named", err, fault.InvalidConfig, "")
	_, err = w.run("image.resolve", `{"image":"no@1"}`)
	wants(t, "unknown", err, fault.NotFound, "")
}

func TestHTTPViaSite(t *testing.T) {
	w := newWorld(t)
	w.says(`{"status":200,"body":"aGk="}`)
	result, err := w.run("http.viaSite", `{"url":"https://10.0.0.1/x","method":"POST","body":"hello","timeout":"5s"}`)
	wants(t, "200", err, "", "")
	var ask agentcommand.HTTPProxy
	w.payload(0, &ask)
	want := agentcommand.HTTPProxy{Method: "POST", URL: "https://10.0.0.1/x", Body: []byte("hello"), Timeout: 5}
	if diff := cmp.Diff(want, ask); diff != "" || !strings.Contains(string(result), `"body":"aGk="`) {
		t.Errorf("got %s; asked:\n%s", result, diff)
	}
	w.says(`{"status":503}`)
	_, err = w.run("http.viaSite", `{"url":"https://10.0.0.1/x"}`)
	wants(t, "503", err, fault.DriverError, "http-status")
	_, err = w.run("http.viaSite", `{"url":"https://10.0.0.1/x","expect":[503]}`)
	wants(t, "503 is fine", err, "", "")

	w = newWorld(t)
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		switch passed := w.now.Sub(start); {
		case passed < time.Minute:
			return agentcommand.Failed, nil
		case passed < 2*time.Minute:
			return agentcommand.Succeeded, json.RawMessage(`{"status":503}`)
		}
		return agentcommand.Succeeded, json.RawMessage(`{"status":200}`)
	}
	_, err = w.run("http.viaSite", `{"url":"https://10.0.0.1/x","poll":true}`)
	wants(t, "polled", err, "", "")
	if len(w.keys) < 3 || len(w.keys) > 8 {
		t.Errorf("%d requests", len(w.keys))
	}
}

func TestRevoke(t *testing.T) {
	w := newWorld(t)
	_, err := w.run("certs.revoke", ``)
	wants(t, "revoke", err, "", "")
	if !strings.Contains(w.revoked, "wf_") {
		t.Errorf("revoked for %q", w.revoked)
	}
}

// A mistyped address of a BMC must not have another machine wiped.
func TestAMachineWithOtherMACsIsHeld(t *testing.T) {
	w := newWorld(t)
	other := `{"hardware":{"nics":[{"mac":"02:00:00:00:00:99"}]}}`
	w.answer = func(agentcommand.State) (agentcommand.Status, any) {
		return agentcommand.Succeeded, agentcommand.Invoked{Result: json.RawMessage(other)}
	}
	_, err := w.run("inspect.outOfBand", ``)
	wants(t, "out of band", err, fault.DriverError, "other-machine")
	if !steps.Final(err) || w.node.Hardware.OutOfBand != nil {
		t.Errorf("final: %v, recorded: %+v", steps.Final(err), w.node.Hardware.OutOfBand)
	}
	w.says(`{"nics":[{"mac":"02:00:00:00:00:99"}]}`)
	_, err = w.run("inspect.hardware", ``)
	wants(t, "in band", err, fault.DriverError, "other-machine")

	w.says(`{"nics":[{"mac":"02:00:00:00:00:99"},{"mac":"B8:CE:F6:00:00:01"}]}`)
	_, err = w.run("inspect.hardware", ``)
	wants(t, "one of them", err, "", "")
	w.node.MACs = nil
	w.says(`{"nics":[{"mac":"02:00:00:00:00:99"}]}`)
	_, err = w.run("inspect.hardware", ``)
	wants(t, "none declared", err, "", "")
}
