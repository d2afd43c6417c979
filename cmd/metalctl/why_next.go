package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
)

// whyNext is a verb that is legal now.
type whyNext struct {
	Verb    string `json:"verb"`
	To      string `json:"to"`
	Command string `json:"command"` // that asks for it
}

// next lists what an operator can do, by the table that this program was built with. events are those that led to here.
func next(n contract.Node, events []contract.Event) []whyNext {
	from, failedFrom := node.ProvisionState(n.Provision), node.ProvisionState(n.FailedFrom)
	list := []whyNext{}
	if from == node.Failed && certificateChanged(events) {
		list = append(list, whyNext{"trust-bmc", n.Provision, "metalctl trust-bmc " + n.ID + " --fingerprint SHA256"})
	}
	for _, v := range node.Legal(from, failedFrom) {
		command := "metalctl " + string(v) + " " + n.ID
		switch {
		case v == node.VerbRetry:
			w := failedWorkflow(events)
			if id.IsZero(w) {
				continue
			}
			command = "metalctl workflow retry " + w.String()
		case !asked(v, from), v == node.VerbAbort && n.Workflow == "":
			continue
		}
		var to []string
		for _, s := range node.Destinations(from, v, failedFrom) {
			to = append(to, string(s))
		}
		list = append(list, whyNext{string(v), strings.Join(to, " or "), command})
	}
	return list
}

// asked tells the verbs that an operator asks of a machine: the others are the control plane's own. Leaving rescue is asked
// by an operator and applied by the control plane.
func asked(v node.Verb, from node.ProvisionState) bool {
	if v == node.VerbRecover || v == node.VerbUnrescue {
		return true
	}
	for _, m := range node.Moves {
		if m.Verb == v && m.From == from && m.Who == node.Operator {
			return true
		}
	}
	return false
}

// failedWorkflow is the workflow that failed the machine; none where it was aborted, for then it can't go on.
func failedWorkflow(events []contract.Event) id.Workflow {
	for _, e := range slices.Backward(events) {
		if moved, ok := known(e).(node.Moved); ok {
			if moved.To != node.Failed || moved.Verb == node.VerbAbort {
				break
			}
			return moved.Workflow
		}
	}
	return id.Workflow{}
}

// certificateReason is the reason that a driver gives.
const certificateReason = "certificate-changed"

// certificateChanged tells whether the newest workflow failed because the BMC shows another certificate than the pinned one.
func certificateChanged(events []contract.Event) bool {
	for _, e := range slices.Backward(events) {
		if ended, ok := known(e).(workflow.Ended); ok {
			return ended.Error != nil && reasonOf(ended.Error.Details) == certificateReason
		}
	}
	return false
}

// reasonOf is the reason in the details of a failure: the driver's own where an agent told of it.
func reasonOf(details json.RawMessage) string {
	var told struct {
		Reason  string `json:"reason"`
		Details struct {
			Reason string `json:"reason"`
		} `json:"details"`
	}
	if json.Unmarshal(details, &told) != nil {
		return ""
	}
	return orElse(told.Details.Reason, told.Reason)
}
