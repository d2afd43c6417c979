package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
)

// The verbs of this file are the process managers' and the agent gateway's: no HTTP route leads to them.

// Accept moves a joined machine on, its pool's acceptance checks having passed.
func (s *Service) Accept(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Accept{})
}

// StartWorkflow makes a workflow the node's active one; a second is CONFLICT. The workflow's id is derived from the event
// that this appends, so that whoever looks next can finish what a crash left.
func (s *Service) StartWorkflow(ctx context.Context, call Call, n id.Node, p node.Profile) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, principal.NodesProvision, func(now node.State, v event.Version) (node.Command, error) {
		w := WorkflowOf(n, v+1)
		if now.Provision == node.Rescue && now.Unrescuing && !id.IsZero(now.UnrescueWorkflow) {
			w = now.UnrescueWorkflow // told when it was asked for
		}
		return node.StartWorkflow{Workflow: w, Profile: p}, nil
	})
}

// Complete says that the node's active workflow succeeded. Ready needs a verified wipe, else UNVERIFIED_WIPE, unless the
// node's pool is agentless and its policy says by name that it does not.
func (s *Service) Complete(ctx context.Context, call Call, n id.Node, w id.Workflow, role node.Role) (NodeOutcome, error) {
	done, err := s.onNode(ctx, call, n, principal.NodesProvision, func(state node.State, _ event.Version) (node.Command, error) {
		in, err := load(ctx, s, pool.Decider, pool.StreamOf(state.Pool))
		if err != nil {
			return nil, err
		}
		policy := ""
		if in.state.Policy.Agent == pool.AgentNone {
			policy = in.state.Policy.UnverifiedRelease
		}
		return node.Complete{Workflow: w, Role: role, Policy: policy}, nil
	})
	return s.retired(ctx, call, done, err)
}

// Fail says that the node's active workflow failed or was cancelled; a zero workflow, that none could be started. The
// same workflow again, also after an abort, changes nothing. The message is bounded; it must hold no secret.
func (s *Service) Fail(ctx context.Context, call Call, n id.Node, w id.Workflow, code fault.Code, message string,
) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Fail{Workflow: w, Code: code, Message: message})
}

// RecordHardware stores a new inventory; one equal to the newest of its source changes nothing.
func (s *Service) RecordHardware(ctx context.Context, call Call, n id.Node, from node.Source, h node.Hardware,
) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.RecordHardware{Facts: node.HardwareRecorded{Source: from, Hardware: h}})
}

// AttestWipe stores the result of a wipe. The caller has checked the signature.
func (s *Service) AttestWipe(ctx context.Context, call Call, n id.Node, w node.Wipe) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.AttestWipe{Wipe: w})
}

// LearnBMC stores what a driver found out about the node's controller; nothing new changes nothing. A fingerprint that is not
// the pinned one is DRIVER_ERROR with reason certificate-changed: somebody else may be answering.
func (s *Service) LearnBMC(ctx context.Context, call Call, n id.Node, facts node.BMCLearned) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.LearnBMC{Facts: facts})
}

// ObservePower stores a power state that was read; the same as before changes nothing. It ends the power action that was asked for
// where that is what read it, which the key tells.
func (s *Service) ObservePower(ctx context.Context, call Call, n id.Node, key string, p node.Power) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.ObservePower{Power: p, Key: key})
}

// FailPower says that the power action of that key came to nothing. The message is bounded; it must hold no secret.
func (s *Service) FailPower(ctx context.Context, call Call, n id.Node, key string, code fault.Code, message string,
) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesPower, node.FailPower{Key: key, Code: code, Message: message})
}
