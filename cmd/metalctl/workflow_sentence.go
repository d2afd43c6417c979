package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/workflow"
)

func workflowSentence(e workflow.Event) string {
	switch e := e.(type) {
	case workflow.Created:
		return fmt.Sprintf("workflow %s was made from %s@%d: %d steps", e.Workflow, e.Profile, e.Version, len(e.StepSpecs))
	case workflow.Began:
		return "workflow began"
	case workflow.PausedRun:
		return "workflow was paused"
	case workflow.ResumedRun:
		return "workflow was resumed"
	case workflow.RetriedRun:
		return fmt.Sprintf("workflow runs again from %s, run %d", e.FromStep, e.Run)
	case workflow.AbortAsked:
		return "workflow was aborted; cleaning up" + because(e.Reason)
	case workflow.Ended:
		return fmt.Sprintf("workflow %s %s", e.Profile, e.Status) + failureText(e.Error)
	case workflow.StepStarted:
		return fmt.Sprintf("step %s started", e.Step) + attempt(e.Attempt)
	case workflow.StepWaits:
		return fmt.Sprintf("step %s waits", e.Step) + attempt(e.Attempt)
	case workflow.StepDone:
		return fmt.Sprintf("step %s succeeded", e.Step) + attempt(e.Attempt)
	case workflow.StepFaulted:
		return fmt.Sprintf("step %s failed", e.Step) + failureText(&e.Error)
	case workflow.StepRetries:
		return fmt.Sprintf("step %s tries again, attempt %d", e.Step, e.Attempt) + failureText(&e.Error)
	case workflow.StepLeft:
		return fmt.Sprintf("step %s %s", e.Step, e.State) + because(e.Reason)
	}
	return plainWords(e.EventType())
}

func attempt(n int) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(", attempt %d", n)
}

func failureText(f *workflow.Failure) string {
	if f == nil {
		return ""
	}
	return because(f.Code + ": " + f.Message)
}

func agentCommandSentence(e agentcommand.Event) string {
	switch e := e.(type) {
	case agentcommand.Requested:
		return fmt.Sprintf("agent command %s (%s) was asked of the %s agent", e.AgentCommand, kindOf(e), e.Role)
	case agentcommand.HandedOut:
		return "agent command was given to " + e.Agent.String()
	case agentcommand.Progressed:
		return "agent command " + string(e.Status)
	case agentcommand.Settled:
		s := "agent command " + string(e.Status)
		if e.Attested {
			s += ", signed by the node"
		}
		return s + because(strings.TrimPrefix(e.Code+": "+e.Reason, ": "))
	case agentcommand.SecretFetched:
		return e.Agent.String() + " was given the value of " + e.Secret
	}
	return plainWords(e.EventType())
}

// kindOf is the kind of an agent command, with the operation of a driver.
func kindOf(r agentcommand.Requested) string {
	if r.Kind != agentcommand.DriverInvoke {
		return string(r.Kind)
	}
	var invoke agentcommand.Invoke
	if json.Unmarshal(r.Payload, &invoke) != nil {
		return string(r.Kind)
	}
	return invoke.Driver + " " + invoke.Concern + "." + invoke.Operation
}

// sayStep tells what a workflow of a machine does, leaving out what only concerns agent commands.
func (a *app) sayStep(e contract.Event) {
	if strings.HasPrefix(e.Type, "workflow.step.") || e.Type == "workflow.failed" || e.Type == "workflow.cancelling" {
		a.say("%s   %s", clock(e.At), sentence(e))
	}
}
