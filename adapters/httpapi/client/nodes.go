package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opEnroll    = post("/v1/nodes")
	opListNodes = get("/v1/nodes",
		"tenant", "site", "pool", "state", "label", "name", "maintenance", "cordoned", "limit", "cursor")
	opGetNode     = get("/v1/nodes/{id}", "at")
	opNodeHistory = get("/v1/nodes/{id}/history", "order", "limit", "cursor")
	opReplayNode  = get("/v1/nodes/{id}/replay", "until")
	opAttestation = get("/v1/nodes/{id}/attestation")
	opManage      = post("/v1/nodes/{id}/manage")
	opInspect     = post("/v1/nodes/{id}/inspect")
	opProvide     = post("/v1/nodes/{id}/provide")
	opDeploy      = post("/v1/nodes/{id}/deploy")
	opUndeploy    = post("/v1/nodes/{id}/undeploy")
	opRescue      = post("/v1/nodes/{id}/rescue")
	opUnrescue    = post("/v1/nodes/{id}/unrescue")
	opRecover     = post("/v1/nodes/{id}/recover")
	opAbort       = post("/v1/nodes/{id}/abort")
	opRetire      = post("/v1/nodes/{id}/retire")
	opAbandon     = post("/v1/nodes/{id}/abandon")
	opPower       = post("/v1/nodes/{id}/power")
	opMaintenance = post("/v1/nodes/{id}/maintenance")
	opCordon      = post("/v1/nodes/{id}/cordon")
	opUncordon    = post("/v1/nodes/{id}/uncordon")
	opTrustBMC    = post("/v1/nodes/{id}/trust-bmc")
	opSetBMC      = post("/v1/nodes/{id}/set-bmc")
)

// Enroll hands over a machine. Errors: INVALID_INPUT, NOT_FOUND (the pool), CONFLICT (an address is taken).
func (c *Client) Enroll(ctx context.Context, in contract.Enrollment, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opEnroll, nil, nil, in, o)
}

// GetNode reads one machine as it is.
func (c *Client) GetNode(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opGetNode, []string{node}, nil, nil, o)
}

// NodeAt reads one machine as it was: at a time (RFC 3339) or at a position of the log.
func (c *Client) NodeAt(ctx context.Context, node, at string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opGetNode, []string{node}, url.Values{"at": {at}}, nil, o)
}

// NodeFilter bounds a list of machines; every field that is set must match.
type NodeFilter struct {
	Tenant, Site, Pool    string
	States                []string // any of them
	Labels                []string // key or key=value; all of them
	NamePrefix            string
	Maintenance, Cordoned *bool
	PageSize              int // zero: the server's most
}

func (f NodeFilter) query() url.Values {
	q := url.Values{}
	set(q, "tenant", f.Tenant)
	set(q, "site", f.Site)
	set(q, "pool", f.Pool)
	set(q, "name", f.NamePrefix)
	for _, s := range f.States {
		q.Add("state", s)
	}
	for _, l := range f.Labels {
		q.Add("label", l)
	}
	if f.Maintenance != nil {
		q.Set("maintenance", strconv.FormatBool(*f.Maintenance))
	}
	if f.Cordoned != nil {
		q.Set("cordoned", strconv.FormatBool(*f.Cordoned))
	}
	if f.PageSize > 0 {
		q.Set("limit", strconv.Itoa(f.PageSize))
	}
	return q
}

func set(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

// Nodes goes through all machines that match, newest first, page by page. It ends after the first error.
func (c *Client) Nodes(ctx context.Context, f NodeFilter, o ...Option) iter.Seq2[contract.Node, error] {
	return pages[contract.Node](ctx, c, opListNodes, nil, f.query(), o)
}

// History goes through what happened to a machine, its workflows and its agent commands: newest first, or oldest first.
func (c *Client) History(ctx context.Context, node string, oldestFirst bool, o ...Option,
) iter.Seq2[contract.Event, error] {
	q := url.Values{}
	if oldestFirst {
		q.Set("order", "oldest")
	}
	return pages[contract.Event](ctx, c, opNodeHistory, []string{node}, q, o)
}

// Replay folds a machine's stream event by event, until a time (RFC 3339) or a position of the log; empty is now.
func (c *Client) Replay(ctx context.Context, node, until string, o ...Option) (contract.Replay, error) {
	return call[contract.Replay](ctx, c, opReplayNode, []string{node}, given("until", until), nil, o)
}

// Attestation reads the newest attested wipe of a machine's disks, checked again by the control plane. Errors: NOT_FOUND, also
// where there was none.
func (c *Client) Attestation(ctx context.Context, node string, o ...Option) (contract.Attestation, error) {
	return call[contract.Attestation](ctx, c, opAttestation, []string{node}, nil, nil, o)
}

// Manage verifies the BMC again, then inspects and commissions: the disks are wiped.
func (c *Client) Manage(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opManage, []string{node}, nil, contract.Empty{}, o)
}

// Inspect inspects again, then commissions: the disks are wiped.
func (c *Client) Inspect(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opInspect, []string{node}, nil, contract.Empty{}, o)
}

// Provide commissions again: the disks are wiped.
func (c *Client) Provide(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opProvide, []string{node}, nil, contract.Empty{}, o)
}

// Deploy installs a pinned version of a profile.
func (c *Client) Deploy(ctx context.Context, node string, in contract.Deploy, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opDeploy, []string{node}, nil, in, o)
}

// Undeploy wipes the disks and gives the machine back.
func (c *Client) Undeploy(ctx context.Context, node string, in contract.Wipe, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opUndeploy, []string{node}, nil, in, o)
}

// Rescue boots the rescue ramdisk beside the installed OS.
func (c *Client) Rescue(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opRescue, []string{node}, nil, contract.Empty{}, o)
}

// Unrescue asks to leave rescue for the installed OS.
func (c *Client) Unrescue(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opUnrescue, []string{node}, nil, contract.Empty{}, o)
}

// Recover moves a failed node to the last stable point.
func (c *Client) Recover(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opRecover, []string{node}, nil, contract.Empty{}, o)
}

// Abort stops the running workflow and fails the node.
func (c *Client) Abort(ctx context.Context, node string, in contract.Reason, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opAbort, []string{node}, nil, in, o)
}

// Retire takes the machine out for good, after a last wipe where its disks are the control plane's to wipe.
func (c *Client) Retire(ctx context.Context, node string, in contract.Wipe, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opRetire, []string{node}, nil, in, o)
}

// Abandon retires a failed machine that is gone or dead, without a wipe.
func (c *Client) Abandon(ctx context.Context, node string, in contract.Reason, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opAbandon, []string{node}, nil, in, o)
}

// Power asks for a power action.
func (c *Client) Power(ctx context.Context, node string, in contract.Power, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opPower, []string{node}, nil, in, o)
}

// SetMaintenance turns maintenance on or off.
func (c *Client) SetMaintenance(ctx context.Context, node string, in contract.Maintenance, o ...Option,
) (contract.Node, error) {
	return call[contract.Node](ctx, c, opMaintenance, []string{node}, nil, in, o)
}

// Cordon keeps new work off the node.
func (c *Client) Cordon(ctx context.Context, node string, in contract.Reason, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opCordon, []string{node}, nil, in, o)
}

// SetBMC changes how the node's BMC is reached. Errors: INVALID_INPUT; CONFLICT for an address that another node has, or while
// something is under way on the node.
func (c *Client) SetBMC(ctx context.Context, node string, in contract.BMCChange, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opSetBMC, []string{node}, nil, in, o)
}

// TrustBMC pins another certificate of the node's BMC. Errors: INVALID_INPUT, INVALID_STATE where none is pinned.
func (c *Client) TrustBMC(ctx context.Context, node string, in contract.Certificate, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opTrustBMC, []string{node}, nil, in, o)
}

// Uncordon lets work on the node again.
func (c *Client) Uncordon(ctx context.Context, node string, o ...Option) (contract.Node, error) {
	return call[contract.Node](ctx, c, opUncordon, []string{node}, nil, contract.Empty{}, o)
}
