package commands

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
)

// NodeOutcome is what a verb did to a node.
type NodeOutcome = Outcome[node.State]

// Manage verifies the BMC again, then inspects and commissions. Legal from ready.
func (s *Service) Manage(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Manage{})
}

// Inspect inspects again, then commissions. Legal from ready.
func (s *Service) Inspect(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Inspect{})
}

// Provide commissions again. Legal from ready.
func (s *Service) Provide(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Provide{})
}

// Deploy installs a pinned version of a profile. Legal from ready. A profile that can't run is refused before the machine
// leaves ready, which it could come back to only by way of a wipe: NOT_FOUND, or INVALID_INPUT with every issue.
func (s *Service) Deploy(ctx context.Context, call Call, n id.Node, p node.Profile) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, principal.NodesProvision, func(state node.State, _ event.Version) (node.Command, error) {
		if state.Provision != node.Ready {
			return node.Deploy{Profile: p}, nil // the move table says why not
		}
		return node.Deploy{Profile: p}, s.checkDeploy(ctx, state, p)
	})
}

// checkDeploy refuses what would end with a machine that is deployed and has no OS, that could not run at all, or whose steps
// would miss what they need: once a machine is deploying, only a wipe leads back.
func (s *Service) checkDeploy(ctx context.Context, n node.State, p node.Profile) error {
	if node.PartOfLife(p.ID) {
		return fault.Invalid(fault.Issue{Path: "body.profileId", Message: p.ID + " prepares or cleans a machine; it installs nothing"})
	}
	found, steps, err := s.profileFor(ctx, n, p)
	if err != nil || s.before == nil {
		return err
	}
	return s.before.Check(ctx, n, found.Document, steps)
}

// Undeploy wipes the disks and gives the machine back. Legal from deployed and rescue. An empty method is quick.
func (s *Service) Undeploy(ctx context.Context, call Call, n id.Node, wipe node.WipeMethod) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Undeploy{Wipe: wipe})
}

// Rescue boots the rescue ramdisk beside the installed OS. Legal from deployed.
func (s *Service) Rescue(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.AskRescue{})
}

// Unrescue asks to leave rescue for the installed OS. Legal from rescue; a second call changes nothing; CONFLICT while
// the rescue ramdisk is still booting.
func (s *Service) Unrescue(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, principal.NodesProvision, func(_ node.State, v event.Version) (node.Command, error) {
		return node.AskUnrescue{Workflow: WorkflowOf(n, v+1)}, nil
	})
}

// Recover moves a failed node to the last stable point, never to ready. Maintenance stays on.
func (s *Service) Recover(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.provision(ctx, call, n, node.Recover{})
}

// Abort fails the node at once and stops its workflow, whose cleanup still runs. The reason holds at most 512 characters.
func (s *Service) Abort(ctx context.Context, call Call, n id.Node, reason string) (NodeOutcome, error) {
	done, err := s.provision(ctx, call, n, node.Abort{Reason: reason})
	if err == nil {
		s.abortAfterNode(ctx, call, done.State, reason)
	}
	return done, err
}

// Retire takes the machine out for good: through a last wipe from ready and failed, at once from joined and adopted. An
// empty method is quick.
func (s *Service) Retire(ctx context.Context, call Call, n id.Node, wipe node.WipeMethod) (NodeOutcome, error) {
	return s.leave(ctx, call, n, node.Retire{Wipe: wipe})
}

// Abandon retires a failed machine that is gone or dead. It is recorded as never wiped. A reason is needed.
func (s *Service) Abandon(ctx context.Context, call Call, n id.Node, reason string) (NodeOutcome, error) {
	return s.leave(ctx, call, n, node.Abandon{Reason: reason})
}

// Power asks for a power action, in place of one that is not over. CONFLICT while a workflow is active on the node.
func (s *Service) Power(ctx context.Context, call Call, n id.Node, action node.PowerAction) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, principal.NodesPower, func(_ node.State, v event.Version) (node.Command, error) {
		key := "power:" + n.String() + ":" + event.Position(v+1).String()
		return node.AskPower{Action: action, Key: key, NotAfter: s.clock().UTC().Add(PowerPatience)}, nil
	})
}

// PowerPatience is how long a power action may take before it is given up.
const PowerPatience = 10 * time.Minute

// SetMaintenance turns maintenance on, with a reason, or off.
func (s *Service) SetMaintenance(ctx context.Context, call Call, n id.Node, on bool, reason string) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesOperate, node.SetMaintenance{On: on, Reason: reason})
}

// TrustBMC pins another certificate of the node's BMC, given by its SHA-256 in lower-case hex, such as after a renewal.
func (s *Service) TrustBMC(ctx context.Context, call Call, n id.Node, fingerprint string) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesOperate, node.TrustBMC{Fingerprint: fingerprint})
}

// Cordon keeps new work off the node.
func (s *Service) Cordon(ctx context.Context, call Call, n id.Node, reason string) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesOperate, node.Cordon{Reason: reason})
}

// Uncordon lets work on the node again.
func (s *Service) Uncordon(ctx context.Context, call Call, n id.Node) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesOperate, node.Uncordon{})
}

// WorkflowOf is the id of the workflow that a node's event leads to: derived, so that whoever looks next finds it.
func WorkflowOf(n id.Node, v event.Version) id.Workflow {
	return id.Of[id.Workflow](uuid.NewSHA1(uuid.UUID(n.UUIDBytes()), []byte(event.Position(v).String())))
}

// provision applies a verb of the move table.
func (s *Service) provision(ctx context.Context, call Call, n id.Node, c node.Command) (NodeOutcome, error) {
	return s.always(ctx, call, n, principal.NodesProvision, c)
}

// leave applies a verb that may end the node's life, and lets go of what the node held when it did.
func (s *Service) leave(ctx context.Context, call Call, n id.Node, c node.Command) (NodeOutcome, error) {
	done, err := s.provision(ctx, call, n, c)
	return s.retired(ctx, call, done, err)
}

// retired lets go of what a node held once it is retired: its BMC's credentials are forgotten and its agent is turned away,
// and only then its addresses are given back. What a crash or an error leaves, SweepClaim finishes by the addresses.
func (s *Service) retired(ctx context.Context, call Call, done NodeOutcome, err error) (NodeOutcome, error) {
	if err != nil || done.State.Provision != node.Retired {
		return done, err
	}
	if err := s.dismiss(ctx, call, done.State); err != nil {
		return done, err
	}
	return done, s.releaseClaims(ctx, call, done.State, "the node is retired")
}

// dismiss forgets a retired node's credentials and turns its agent away. A second time changes nothing.
func (s *Service) dismiss(ctx context.Context, call Call, state node.State) error {
	var err error
	if state.BMC != nil {
		err = s.secrets.Delete(ctx, state.BMC.Credentials)
	}
	return errors.Join(err, s.revokeAgentsOf(ctx, call, state.ID))
}

// always applies a command that does not depend on the state it meets.
func (s *Service) always(ctx context.Context, call Call, n id.Node, a principal.Action, c node.Command) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, a, func(node.State, event.Version) (node.Command, error) { return c, nil })
}

func (s *Service) onNode(ctx context.Context, call Call, n id.Node, a principal.Action,
	decide func(node.State, event.Version) (node.Command, error),
) (NodeOutcome, error) {
	return handle(ctx, s, call, request[node.State, node.Command, node.Event]{
		decider:   node.Decider,
		stream:    node.StreamOf(n),
		authorize: func(state node.State) error { return s.mayActOn(call, n, a, state) },
		decide:    decide,
		meta:      nodeMeta,
	})
}

func (s *Service) mayActOn(call Call, n id.Node, a principal.Action, state node.State) error {
	if !state.Exists() {
		return fault.New(fault.NotFound, "there is no node %s", n)
	}
	return s.auth.Allow(call.Actor, a, ResourceOf(state))
}

// ResourceOf is a node as authorization sees it.
func ResourceOf(state node.State) Resource {
	return Resource{Kind: OnNode, Tenant: state.Tenant, Site: state.Site, Pool: state.Pool, Node: state.ID}
}

func nodeMeta(state node.State) event.Meta {
	return event.Meta{Tenant: state.Tenant.String(), Subject: "node/" + state.ID.String()}
}
