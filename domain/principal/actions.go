package principal

import (
	"slices"
	"strings"
)

// Action names what a principal may do: compute:<group>:<right>.
type Action string

// The actions. Actions says what each is decided on.
const (
	NodesRead       Action = "compute:nodes:read"
	NodesProvision  Action = "compute:nodes:provision"
	NodesPower      Action = "compute:nodes:power"
	NodesOperate    Action = "compute:nodes:operate"
	WorkflowsRead   Action = "compute:workflows:read"
	WorkflowsManage Action = "compute:workflows:manage"
	ProfilesRead    Action = "compute:profiles:read"
	ProfilesWrite   Action = "compute:profiles:write"
	ImagesRead      Action = "compute:images:read"
	ImagesWrite     Action = "compute:images:write"
	PoolsRead       Action = "compute:pools:read"
	PoolsWrite      Action = "compute:pools:write"
	SitesRead       Action = "compute:sites:read"
	SitesWrite      Action = "compute:sites:write"
	TenantsRead     Action = "compute:tenants:read"
	TenantsWrite    Action = "compute:tenants:write"
	TokensRead      Action = "compute:tokens:read"
	TokensWrite     Action = "compute:tokens:write"
	BatchesApprove  Action = "compute:batches:approve"
	EventsRead      Action = "compute:events:read"
	AuditRead       Action = "compute:audit:read"
	IAMRead         Action = "compute:iam:read"
	IAMWrite        Action = "compute:iam:write"
)

// ActionInfo is one row of Actions.
type ActionInfo struct {
	Action    Action
	DecidedOn string // the narrowest scope at which a binding may grant it
	Allows    string
}

// Actions is the closed list.
var Actions = []ActionInfo{
	{NodesRead, "node", "get, list and history of nodes"},
	{NodesProvision, "node", "enroll (on the pool) and every provision verb"},
	{NodesPower, "node", "power"},
	{NodesOperate, "node", "maintenance, cordon"},
	{WorkflowsRead, "node", "get and list workflows"},
	{WorkflowsManage, "node", "abort, retry, pause, resume workflows"},
	{ProfilesRead, "tenant", "read profiles"},
	{ProfilesWrite, "tenant", "write profiles"},
	{ImagesRead, "tenant", "read images"},
	{ImagesWrite, "tenant", "write images"},
	{PoolsRead, "pool", "read pools"},
	{PoolsWrite, "pool", "create pools (on the tenant) and change their policy"},
	{SitesRead, "site", "read sites"},
	{SitesWrite, "site", "create sites (on the tenant) and change their policy"},
	{TenantsRead, "tenant", "read tenants"},
	{TenantsWrite, "tenant", "create tenants (on the root tenant) and change their policy"},
	{TokensRead, "site", "read join tokens"},
	{TokensWrite, "site", "mint and revoke join tokens"},
	{BatchesApprove, "pool", "approve a batch"},
	{EventsRead, "tenant", "follow events"},
	{AuditRead, "tenant", "replay and verify"},
	{IAMRead, "tenant", "read principals and bindings"},
	{IAMWrite, "tenant", "write principals, their tokens and bindings"},
}

// Pattern is an action, or a prefix of one followed by *, such as compute:nodes:* or *.
type Pattern string

// Valid reports whether the pattern grants anything at all.
func (p Pattern) Valid() bool {
	return slices.ContainsFunc(Actions, func(row ActionInfo) bool { return p.Grants(row.Action) })
}

// Grants reports whether the pattern covers a.
func (p Pattern) Grants(a Action) bool {
	if prefix, wild := strings.CutSuffix(string(p), "*"); wild {
		return strings.HasPrefix(string(a), prefix) && (prefix == "" || strings.HasSuffix(prefix, ":"))
	}
	return string(p) == string(a)
}
