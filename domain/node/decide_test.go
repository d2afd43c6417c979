package node_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
)

func numbered(n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n)))
}

func workflow(n int) id.Workflow { return id.Of[id.Workflow](numbered(n)) }

func disk(n int) node.Disk { return node.Disk{WWN: "0x" + strconv.Itoa(n), Model: "X", Bytes: 1 << 30} }

var (
	someNode = id.Of[id.Node](numbered(1))
	image    = node.Profile{ID: "image-host", Version: 2}
)

func enroll() node.Command {
	return node.Enroll{Facts: node.Enrolled{
		Node: someNode, Name: "rack-7", MACs: []string{"b8:ce:f6:00:00:01"},
		BMC: node.BMC{Driver: "redfish", Address: "https://10.0.0.10", Credentials: "secret:1"},
	}}
}

func join() node.Command {
	return node.Join{Facts: node.AgentJoined{Node: someNode, Name: "rack-8"}}
}

// play folds what the commands decide; each of them must succeed.
func play(t *testing.T, commands ...node.Command) node.State {
	t.Helper()
	var s node.State
	for i, c := range commands {
		events, err := node.Decide(s, c)
		if err != nil {
			t.Fatalf("command %d (%T): %v", i, c, err)
		}
		s = node.Decider.Fold(s, events...)
	}
	return s
}

// run makes the commands of a workflow that succeeds.
func run(n int, between ...node.Command) []node.Command {
	start := node.StartWorkflow{Workflow: workflow(n), Profile: node.Profile{ID: "metal", Version: 1}}
	return append(append([]node.Command{start}, between...), node.Complete{Workflow: workflow(n)})
}

func inventory(disks ...node.Disk) node.Command {
	return node.RecordHardware{Facts: node.HardwareRecorded{
		Source: node.InBand, Hardware: node.Hardware{Serial: "S1", Disks: disks},
	}}
}

func wiped(n int, disks ...node.Disk) node.AttestWipe {
	w := node.Wipe{Workflow: workflow(n), Signed: true, Method: node.WipeQuick, BootID: "boot-1"}
	for _, d := range disks {
		w.Disks = append(w.Disks, node.WipedDisk{Disk: d, Method: node.WipeQuick, ReadBack: true})
	}
	return node.AttestWipe{Wipe: w}
}

// The paths of a machine's life, each one continuing another.
func toReady() []node.Command {
	c := append([]node.Command{enroll()}, run(1)...)
	c = append(c, run(2, inventory(disk(1), disk(2)))...)
	return append(c, run(3, wiped(3, disk(1), disk(2)))...)
}

func toDeployed() []node.Command {
	return append(append(toReady(), node.Deploy{Profile: image}), run(4)...)
}

func toRescueUp() []node.Command { return append(append(toDeployed(), node.AskRescue{}), run(5)...) }

func with(path []node.Command, more ...node.Command) []node.Command {
	return append(slices.Clip(path), more...)
}

func TestAWholeLife(t *testing.T) {
	s := play(t, toReady()...)
	if s.Provision != node.Ready || !s.WipeVerified() || s.Workflow != nil {
		t.Fatalf("after commissioning: %+v", s)
	}
	s = play(t, toDeployed()...)
	if s.Provision != node.Deployed || s.Role != node.RoleHost || !s.Schedulable() || *s.Profile != image {
		t.Fatalf("after the deploy: %+v", s)
	}
	s = play(t, with(with(toDeployed(), node.Undeploy{}), run(5, wiped(5, disk(1), disk(2)))...)...)
	if s.Provision != node.Ready || s.Profile != nil || s.Role != "" {
		t.Fatalf("after the release: %+v", s)
	}
	s = play(t, with(with(toReady(), node.Retire{}), run(5, wiped(5, disk(1), disk(2)))...)...)
	if s.Provision != node.Retired {
		t.Fatalf("after retiring: %+v", s)
	}
}

func TestVerbsInTheirState(t *testing.T) {
	lost := node.Fail{Workflow: workflow(4), Code: fault.Timeout, Message: "too late"}
	deploying := with(toReady(), node.Deploy{Profile: image},
		node.StartWorkflow{Workflow: workflow(4), Profile: image})
	tests := map[string]struct {
		given []node.Command
		when  node.Command
		to    node.ProvisionState // of the move that must follow; empty: no event
		err   fault.Code
	}{
		"release without a wipe":        {given: with(with(toDeployed(), node.Undeploy{}), start(5)), when: node.Complete{Workflow: workflow(5)}, err: fault.UnverifiedWipe},
		"release with one disk missing": {given: with(with(toDeployed(), node.Undeploy{}), start(5), wiped(5, disk(1))), when: node.Complete{Workflow: workflow(5)}, err: fault.UnverifiedWipe},
		"release by an agentless policy": {given: with(with(toDeployed(), node.Undeploy{}), start(5)),
			when: node.Complete{Workflow: workflow(5), Policy: "allow-unverified-release"}, to: node.Ready},
		"release after a new disk appeared": {given: with(with(toDeployed(), node.Undeploy{}), start(5),
			wiped(5, disk(1), disk(2)), inventory(disk(1), disk(2), disk(3))), when: node.Complete{Workflow: workflow(5)}, err: fault.UnverifiedWipe},
		"release with wipe none commissions": {given: with(with(toDeployed(), node.Undeploy{Wipe: node.WipeNone}), start(5)),
			when: node.Complete{Workflow: workflow(5)}, to: node.Commissioning},
		"a wipe of another workflow": {given: with(with(toDeployed(), node.Undeploy{}), start(5)), when: wiped(3, disk(1)), err: fault.Conflict},

		"deploy from deployed":        {given: toDeployed(), when: node.Deploy{Profile: image}, err: fault.InvalidState},
		"deploy without a version":    {given: toReady(), when: node.Deploy{Profile: node.Profile{ID: "x"}}, err: fault.InvalidInput},
		"fail from deployed":          {given: toDeployed(), when: node.Fail{Message: "no"}, err: fault.InvalidState},
		"retire from deployed":        {given: toDeployed(), when: node.Retire{}, err: fault.InvalidState},
		"manage from deployed":        {given: toDeployed(), when: node.Manage{}, err: fault.InvalidState},
		"provide from rescue":         {given: toRescueUp(), when: node.Provide{}, err: fault.InvalidState},
		"undeploy with a wrong wipe":  {given: toDeployed(), when: node.Undeploy{Wipe: "shred"}, err: fault.InvalidInput},
		"undeploy from rescue":        {given: toRescueUp(), when: node.Undeploy{}, to: node.Releasing},
		"undeploy while rescue boots": {given: with(toDeployed(), node.AskRescue{}, start(5)), when: node.Undeploy{}, err: fault.Conflict},
		"unrescue outside rescue":     {given: toReady(), when: node.AskUnrescue{}, err: fault.InvalidState},
		"unrescue while it boots":     {given: with(toDeployed(), node.AskRescue{}, start(5)), when: node.AskUnrescue{}, err: fault.Conflict},
		"unrescue twice":              {given: with(toRescueUp(), node.AskUnrescue{Workflow: workflow(6)}), when: node.AskUnrescue{Workflow: workflow(7)}},
		"unrescue succeeded": {given: with(toRescueUp(), node.AskUnrescue{Workflow: workflow(6)}, start(6)),
			when: node.Complete{Workflow: workflow(6)}, to: node.Deployed},

		"abort without a workflow":        {given: with(nil, enroll()), when: node.Abort{}, err: fault.InvalidState},
		"abort in rescue when up":         {given: toRescueUp(), when: node.Abort{}, err: fault.InvalidState},
		"cordon with a control character": {given: toReady(), when: node.Cordon{Reason: "a\x1bb"}, err: fault.InvalidInput},
		"abort with a long reason":        {given: deploying, when: node.Abort{Reason: strings.Repeat("ü", 513)}, err: fault.InvalidInput},
		"abort with the longest reason":   {given: deploying, when: node.Abort{Reason: strings.Repeat("ü", 512)}, to: node.Failed},
		"fail after abort":                {given: with(deploying, node.Abort{}), when: lost},
		"abort after fail":                {given: with(deploying, lost), when: node.Abort{}, err: fault.InvalidState},
		"fail of another workflow":        {given: deploying, when: node.Fail{Workflow: workflow(9)}, err: fault.Conflict},
		"fail of a node with a workflow":  {given: deploying, when: node.Fail{}, err: fault.Conflict},
		"complete of another workflow":    {given: deploying, when: node.Complete{Workflow: workflow(9)}, err: fault.Conflict},
		"complete twice":                  {given: toDeployed(), when: node.Complete{Workflow: workflow(4)}},
		"a second workflow":               {given: deploying, when: start(9), err: fault.Conflict},
		"a workflow in ready":             {given: toReady(), when: start(9), err: fault.InvalidState},
		"a workflow in rescue when up":    {given: toRescueUp(), when: start(9), err: fault.InvalidState},

		"recover a failed deploy":            {given: with(deploying, lost), when: node.Recover{}, to: node.Releasing},
		"recover in ready":                   {given: toReady(), when: node.Recover{}, err: fault.InvalidState},
		"retry a failed deploy":              {given: with(deploying, lost), when: node.Retry{Workflow: workflow(4)}, to: node.Deploying},
		"retry another workflow":             {given: with(deploying, lost), when: node.Retry{Workflow: workflow(3)}, err: fault.Conflict},
		"retry after abort":                  {given: with(deploying, node.Abort{}), when: node.Retry{Workflow: workflow(4)}, err: fault.InvalidState},
		"retry where none could be started":  {given: with(toReady(), node.Deploy{Profile: image}, node.Fail{Message: "x"}), when: node.Retry{}, err: fault.Conflict},
		"retire from failed":                 {given: with(deploying, lost), when: node.Retire{}, to: node.Retiring},
		"retire with wipe none":              {given: toReady(), when: node.Retire{Wipe: node.WipeNone}, err: fault.InvalidInput},
		"retire from joined":                 {given: with(nil, join()), when: node.Retire{}, to: node.Retired},
		"abandon without a reason":           {given: with(deploying, lost), when: node.Abandon{}, err: fault.InvalidInput},
		"abandon":                            {given: with(deploying, lost), when: node.Abandon{Reason: "burnt"}, to: node.Retired},
		"recover in retired":                 {given: with(nil, join(), node.Retire{}), when: node.Recover{}, err: fault.InvalidState},
		"maintenance in retired":             {given: with(nil, join(), node.Retire{}), when: node.SetMaintenance{On: true}, err: fault.InvalidState},
		"power while a workflow is active":   {given: deploying, when: node.AskPower{Action: node.ActionOff}, err: fault.Conflict},
		"power without a BMC":                {given: with(nil, join()), when: node.AskPower{Action: node.ActionOff}, err: fault.InvalidState},
		"power with a wrong action":          {given: toReady(), when: node.AskPower{Action: "explode"}, err: fault.InvalidInput},
		"a verb on nothing":                  {when: node.Deploy{Profile: image}, err: fault.NotFound},
		"enroll twice":                       {given: with(nil, enroll()), when: enroll(), err: fault.Conflict},
		"enroll after its claims were freed": {given: with(nil, node.VoidEnrollment{}), when: enroll(), err: fault.Conflict},
		"void what exists":                   {given: with(nil, enroll()), when: node.VoidEnrollment{}, err: fault.Conflict},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			events, err := node.Decide(play(t, tt.given...), tt.when)
			if got := fault.CodeOf(err); got != tt.err {
				t.Fatalf("got error %v, want %q", err, tt.err)
			}
			var to node.ProvisionState
			for _, e := range events {
				if m, ok := e.(node.Moved); ok {
					to = m.To
				}
			}
			if to != tt.to {
				t.Fatalf("got %q from %v, want %q", to, events, tt.to)
			}
		})
	}
}

func start(n int) node.Command {
	return node.StartWorkflow{Workflow: workflow(n), Profile: node.Profile{ID: "metal", Version: 1}}
}

func TestFailureIsOneEvent(t *testing.T) {
	s := play(t, with(toReady(), node.Deploy{Profile: image}, start(4))...)
	events, err := node.Decide(s, node.Fail{Workflow: workflow(4), Code: fault.DriverError, Message: "no carrier"})
	if err != nil || len(events) != 1 {
		t.Fatalf("got %v, %v", events, err)
	}
	s = node.Evolve(s, events[0])
	want := &node.Failure{Code: "DRIVER_ERROR", Message: "no carrier"}
	if s.FailedFrom != node.Deploying || s.Maintenance == nil || !cmp.Equal(s.LastError, want) {
		t.Fatalf("got %+v", s)
	}
	recovered, err := node.Decide(s, node.Recover{})
	if err != nil {
		t.Fatal(err)
	}
	s = node.Decider.Fold(s, recovered...)
	if s.FailedFrom != node.None || s.LastError != nil || s.Maintenance == nil || s.ReleaseWipe != node.WipeQuick {
		t.Fatalf("after recover: %+v", s)
	}
	if !cmp.Equal(s.Answered, want) {
		t.Fatalf("recover answers %+v", s.Answered)
	}
}

// Who recovers or retires a failed node knows why it failed; who retries wants it done as it was. The answer is to one failure.
func TestWhatAnOperatorAnswers(t *testing.T) {
	failed := with(toDeployed(), node.Undeploy{}, start(5), node.Fail{Workflow: workflow(5), Code: fault.UnverifiedWipe, Message: "a disk"})
	for name, c := range map[string]struct {
		then     []node.Command
		answered bool
	}{
		"nothing":  {nil, false},
		"retry":    {[]node.Command{node.Retry{Workflow: workflow(5)}}, false},
		"recover":  {[]node.Command{node.Recover{}, start(6)}, true},
		"retire":   {[]node.Command{node.Retire{}, start(6)}, true},
		"once":     {[]node.Command{node.Recover{}, start(6), node.Fail{Workflow: workflow(6), Message: "another"}}, false},
		"its last": {[]node.Command{node.Recover{}, start(6), node.Fail{Workflow: workflow(6)}, node.Retry{Workflow: workflow(6)}}, false},
	} {
		if s := play(t, with(failed, c.then...)...); (s.Answered != nil) != c.answered || c.answered && s.Answered.Message != "a disk" {
			t.Errorf("%s: %+v", name, s.Answered)
		}
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	s := play(t, with(nil, enroll(), start(1))...)
	events, err := node.Decide(s, node.Fail{Workflow: workflow(1), Message: "x\xff" + strings.Repeat("é", 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	text := events[0].(node.Moved).Error.Message
	if len(text) > node.MaxError || !utf8.ValidString(text) || !strings.HasSuffix(text, "[cut]") {
		t.Fatalf("%d bytes, valid %v, ends %q", len(text), utf8.ValidString(text), text[len(text)-10:])
	}
}

func TestRetryRunsTheSameWorkflowAgain(t *testing.T) {
	s := play(t, with(toReady(), node.Deploy{Profile: image}, start(4), node.Fail{Workflow: workflow(4)},
		node.Retry{Workflow: workflow(4)}, node.Fail{Workflow: workflow(4)}, node.Retry{Workflow: workflow(4)})...)
	if s.Workflow == nil || s.Workflow.ID != workflow(4) || s.Workflow.Run != 3 || s.Provision != node.Deploying {
		t.Fatalf("got %+v", s)
	}
}

// A retry keeps the wipe that its workflow has proven; an operator's new chain does not.
func TestWhatAWipeProves(t *testing.T) {
	failedAfterWipe := with(with(toDeployed(), node.Undeploy{}), start(5), wiped(5, disk(1), disk(2)),
		node.Fail{Workflow: workflow(5), Message: "power off failed"})
	s := play(t, with(failedAfterWipe, node.Retry{Workflow: workflow(5)}, node.Complete{Workflow: workflow(5)})...)
	if s.Provision != node.Ready {
		t.Fatalf("a retry after a proven wipe ended in %s", s.Provision)
	}
	s = play(t, with(toReady(), node.Provide{}, start(4))...)
	if _, err := node.Decide(s, node.Complete{Workflow: workflow(4)}); fault.CodeOf(err) != fault.UnverifiedWipe {
		t.Fatalf("provide ended without a wipe of its own: %v", err)
	}
}

// Who retires a machine asks for a wipe of its own, often a stronger one than before: where that fails, the one before says nothing.
func TestWhatRetiresUnwipedSaysSo(t *testing.T) {
	strong := func(done node.WipeMethod) node.AttestWipe {
		w := wiped(4, disk(1), disk(2))
		w.Wipe.Method = node.WipeSecureErase
		for i := range w.Wipe.Disks {
			w.Wipe.Disks[i].Method = done
		}
		return w
	}
	for name, test := range map[string]struct {
		wipe []node.Command
		want bool
	}{
		"not wiped anew":    {nil, false},
		"wiped as asked":    {[]node.Command{strong(node.WipeSecureErase)}, true},
		"wiped more weakly": {[]node.Command{strong(node.WipeQuick)}, false},
	} {
		s := play(t, with(with(toReady(), node.Retire{Wipe: node.WipeSecureErase}, start(4)), test.wipe...)...)
		events, err := node.Decide(s, node.Complete{Workflow: workflow(4)})
		if err != nil {
			t.Fatal(name, err)
		}
		if m := events[0].(node.Moved); m.To != node.Retired || m.Wiped == nil || *m.Wiped != test.want {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Disks of one name may be several: each of them has to be proven, whatever became of another.
func TestDisksOfOneNameAreProvenOneByOne(t *testing.T) {
	twin, good, bad := disk(1), node.WipedDisk{Disk: disk(1), Method: node.WipeQuick, ReadBack: true}, node.WipedDisk{Disk: disk(1)}
	for name, test := range map[string]struct {
		wiped []node.WipedDisk
		left  int
	}{
		"both":               {[]node.WipedDisk{good, good}, 0},
		"the second is not":  {[]node.WipedDisk{good, bad}, 2},
		"the first is not":   {[]node.WipedDisk{bad, good}, 2},
		"one is not there":   {[]node.WipedDisk{good}, 1},
		"one more than told": {[]node.WipedDisk{good, good, good}, 0},
		"none":               {nil, 2},
	} {
		s := node.State{Wipe: &node.Wipe{Signed: true, Disks: test.wiped}}
		s.Hardware.InBand = &node.Hardware{Disks: []node.Disk{twin, twin}}
		if left, complete := s.Unproven(); !complete || len(left) != test.left || s.WipeVerified() != (test.left == 0) {
			t.Errorf("%s: %v, %t", name, left, complete)
		}
	}
}

func TestIllegalTellsWhatIsLegal(t *testing.T) {
	_, err := node.Decide(play(t, toReady()...), node.Undeploy{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Details["state"] != "ready" || f.Details["verb"] != "undeploy" {
		t.Fatalf("got %#v", err)
	}
	want := []node.Verb{node.VerbManage, node.VerbInspect, node.VerbProvide, node.VerbDeploy, node.VerbRetire}
	if diff := cmp.Diff(want, f.Details["legal"]); diff != "" {
		t.Fatal(diff)
	}
}
