package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections/metalview"
)

// needs and takes are a verb's input: with a body, and with one that may be left out.
type (
	needs[B any] struct {
		ID string `path:"id"`
		Matching
		Body B
	}
	takes[B any] struct {
		ID string `path:"id"`
		Matching
		Body *B
	}
)

// verb is one verb against a node with a body of type B.
type verb[B any] func(context.Context, commands.Call, id.Node, B) (commands.NodeOutcome, error)

// plainVerb is a verb without parameters.
func plainVerb(apply func(context.Context, commands.Call, id.Node) (commands.NodeOutcome, error)) verb[contract.Empty] {
	return func(ctx context.Context, call commands.Call, n id.Node, _ contract.Empty) (commands.NodeOutcome, error) {
		return apply(ctx, call, n)
	}
}

func (a *API) nodeVerbs() {
	operate(a, document{
		id: "enroll-node", method: http.MethodPost, path: "/v1/nodes", tag: "nodes", status: http.StatusCreated, late: true,
		summary: "Hand over a machine", gives: oneOf[contract.Node](),
		more: "The BMC's address must be free within the site, and each MAC everywhere, else CONFLICT.",
	}, a.enroll)
	s := a.service
	optional(a, "manage", "Verify the BMC again, then inspect and commission", plainVerb(s.Manage))
	optional(a, "inspect", "Inspect again, then commission", plainVerb(s.Inspect))
	optional(a, "provide", "Commission again", plainVerb(s.Provide))
	required(a, "deploy", "Install a version of a profile", a.deploy)
	optional(a, "undeploy", "Wipe the disks and give the machine back", a.undeploy)
	optional(a, "rescue", "Boot the rescue ramdisk beside the installed OS", plainVerb(s.Rescue))
	optional(a, "unrescue", "Leave rescue for the installed OS", plainVerb(s.Unrescue))
	optional(a, "recover", "Move a failed machine to its last stable point", plainVerb(s.Recover))
	optional(a, "abort", "Stop the running workflow and fail the machine", a.abort)
	optional(a, "retire", "Take the machine out for good, after a last wipe", a.retire)
	required(a, "abandon", "Retire a failed machine that is gone; a reason is needed", a.abandon)
	required(a, "power", "Ask for a power action", a.power)
	required(a, "maintenance", "Turn maintenance on or off", a.maintenance)
	optional(a, "cordon", "Keep new work off the machine", a.cordon)
	optional(a, "uncordon", "Let work on the machine again", plainVerb(s.Uncordon))
	required(a, "trust-bmc", "Trust another certificate of the machine's BMC, such as a renewed one", a.trustBMC)
	required(a, "set-bmc", "Change how the machine's BMC is reached: credentials, address, trust", a.setBMC)
}

func required[B any](a *API, name, summary string, apply verb[B]) {
	operate(a, verbDocument(name, summary), func(ctx context.Context, in *needs[B]) (*answer, error) {
		return onNode(ctx, a, in.ID, in.Matching, in.Body, apply)
	})
}

func optional[B any](a *API, name, summary string, apply verb[B]) {
	operate(a, verbDocument(name, summary), func(ctx context.Context, in *takes[B]) (*answer, error) {
		var body B
		if in.Body != nil {
			body = *in.Body
		}
		return onNode(ctx, a, in.ID, in.Matching, body, apply)
	})
}

func verbDocument(name, summary string) document {
	return document{
		id: name + "-node", method: http.MethodPost, path: "/v1/nodes/{id}/" + name, tag: "verbs", summary: summary,
		gives: oneOf[contract.Node](), late: true,
	}
}

func onNode[B any](ctx context.Context, a *API, text string, m Matching, body B, apply verb[B]) (*answer, error) {
	n, call, err := target[id.Node](ctx, text, m)
	if err != nil {
		return nil, err
	}
	done, err := apply(ctx, call, n, body)
	if err != nil {
		return nil, err
	}
	return a.nodeDone(ctx, done)
}

func (a *API) nodeDone(ctx context.Context, done commands.NodeOutcome) (*answer, error) {
	view, err := json.Marshal(metalview.Of(done.State, done.Version, done.Position, done.At))
	if err != nil {
		return nil, err
	}
	views := []json.RawMessage{view}
	if err := a.withPresence(ctx, views); err != nil { // what was done is told also where nothing can be told of the agent
		a.log.WarnContext(ctx, "an answer does not tell of the agent", "requestId", requestOf(ctx).id, "error", causes(err))
	}
	return a.done(ctx, metalview.Name, done.Version, done.Position, views[0])
}

func (a *API) enroll(ctx context.Context, in *creates[contract.Enrollment]) (*answer, error) {
	p, err := idAt[id.Pool]("body.poolId", in.Body.Pool)
	if err != nil {
		return nil, err
	}
	b := in.Body
	bmc := commands.BMCAccess{
		Driver: b.BMC.Driver, Address: b.BMC.Address,
		Username: b.BMC.Credentials.Username, Password: b.BMC.Credentials.Password,
	}
	if b.BMC.TLS != nil {
		bmc.TLS = trustOf(*b.BMC.TLS)
	}
	done, err := a.service.Enroll(ctx, creation(ctx), commands.Enrollment{
		Pool: p, Name: b.Name, Labels: b.Labels, BMC: bmc, MACs: b.MACs, HardwareProfile: b.HardwareProfile,
	})
	if err != nil {
		return nil, err
	}
	out, err := a.nodeDone(ctx, done)
	return located(out, "/v1/nodes/"+done.State.ID.String(), err)
}

func (a *API) deploy(ctx context.Context, c commands.Call, n id.Node, b contract.Deploy) (commands.NodeOutcome, error) {
	return a.service.Deploy(ctx, c, n, node.Profile{ID: b.Profile, Version: b.Version})
}

func (a *API) undeploy(ctx context.Context, c commands.Call, n id.Node, b contract.Wipe) (commands.NodeOutcome, error) {
	return a.service.Undeploy(ctx, c, n, node.WipeMethod(b.Method))
}

func (a *API) abort(ctx context.Context, c commands.Call, n id.Node, b contract.Reason) (commands.NodeOutcome, error) {
	return a.service.Abort(ctx, c, n, b.Reason)
}

func (a *API) retire(ctx context.Context, c commands.Call, n id.Node, b contract.Wipe) (commands.NodeOutcome, error) {
	return a.service.Retire(ctx, c, n, node.WipeMethod(b.Method))
}

func (a *API) abandon(ctx context.Context, c commands.Call, n id.Node, b contract.Reason) (commands.NodeOutcome, error) {
	return a.service.Abandon(ctx, c, n, b.Reason)
}

func (a *API) power(ctx context.Context, c commands.Call, n id.Node, b contract.Power) (commands.NodeOutcome, error) {
	return a.service.Power(ctx, c, n, node.PowerAction(b.Action))
}

func (a *API) maintenance(ctx context.Context, c commands.Call, n id.Node, b contract.Maintenance,
) (commands.NodeOutcome, error) {
	if !b.On && b.Reason != "" {
		return commands.NodeOutcome{}, fault.Invalid(fault.Issue{
			Path: "body.reason", Message: "with on only: leaving maintenance needs no reason",
		})
	}
	return a.service.SetMaintenance(ctx, c, n, b.On, b.Reason)
}

func (a *API) trustBMC(ctx context.Context, c commands.Call, n id.Node, b contract.Certificate) (commands.NodeOutcome, error) {
	return a.service.TrustBMC(ctx, c, n, b.Fingerprint)
}

func (a *API) setBMC(ctx context.Context, c commands.Call, n id.Node, b contract.BMCChange) (commands.NodeOutcome, error) {
	in := commands.BMCChange{Address: b.Address}
	if b.Credentials != nil {
		in.Credentials = &commands.Credentials{Username: b.Credentials.Username, Password: b.Credentials.Password}
	}
	if b.TLS != nil {
		trust := trustOf(*b.TLS)
		in.TLS = &trust
	}
	return a.service.ChangeBMC(ctx, c, n, in)
}

func trustOf(t contract.TLSPolicy) node.TLSPolicy {
	return node.TLSPolicy{Mode: node.TLSMode(t.Mode), Fingerprint: t.Fingerprint, CA: t.CA}
}

func (a *API) cordon(ctx context.Context, c commands.Call, n id.Node, b contract.Reason) (commands.NodeOutcome, error) {
	return a.service.Cordon(ctx, c, n, b.Reason)
}
