// Package authz decides who may do what, with Cedar policies (https://docs.cedarpolicy.com).
//
// The policies are data: schema/policies grants what a principal's bindings say, and an operator may add files that
// forbid more. Everything that is decided on lies in a tree: a node in its pool, its site and its tenant, and all in
// the root tenant; a binding reaches what lies in its scope. What a caller may not read does not exist for it, word for
// word.
package authz

import (
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/principal"
)

// Authorizer is commands.Authorizer over a fixed set of policies. It is safe for concurrent use.
type Authorizer struct {
	policies policySets
	grants   *grants
}

var _ commands.Authorizer = (*Authorizer)(nil)

// New compiles the shipped policies and an operator's own, which only forbid. Errors: INVALID_CONFIG with every issue,
// each at its file and line.
func New(own ...File) (*Authorizer, error) {
	policies, err := compile(own)
	if err != nil {
		return nil, err
	}
	return &Authorizer{policies: policies, grants: newGrants()}, nil
}

// Allow returns nil where actor may do action on the resource; FORBIDDEN, with the action in the details, where it may
// only read it; NOT_FOUND, as of a resource that was never there, where it may not even read it. The control plane
// itself may do everything: no policy can stop a machine halfway.
func (a *Authorizer) Allow(actor commands.Actor, action principal.Action, on commands.Resource) error {
	if actor.System {
		return nil
	}
	subject, where := a.grants.of(actor), placeOf(on)
	if a.permits(subject, action, where) {
		return nil
	}
	if a.permits(subject, reading(on.Kind), where) || a.permits(subject, readOf(action), where) {
		return fault.New(fault.Forbidden, "the credential does not allow %s here", action).
			WithDetail("action", string(action))
	}
	return missing(on)
}

// permits asks Cedar. An action that is not in the closed list is never permitted.
func (a *Authorizer) permits(subject *subject, action principal.Action, where place) bool {
	info, known := actions[action]
	if !known {
		return false
	}
	policies := a.policies.all
	if info.reads {
		policies = a.policies.shipped
	}
	decision, diagnostic := cedar.Authorize(policies, entitiesOf(subject, where, info.grant), cedar.Request{
		Principal: subject.uid, Action: info.action, Resource: where.resource, Context: info.context,
	})
	// A policy that cannot be evaluated might have forbidden: then nothing is allowed.
	return decision == cedar.Allow && len(diagnostic.Errors) == 0
}

// reading is the action that shows a resource of a kind.
func reading(kind commands.ResourceKind) principal.Action {
	switch kind {
	case commands.OnNode:
		return principal.NodesRead
	case commands.OnPool:
		return principal.PoolsRead
	case commands.OnSite:
		return principal.SitesRead
	case commands.OnTenant:
		return principal.TenantsRead
	case commands.OnPrincipal:
		return principal.IAMRead
	default:
		return ""
	}
}

// readOf is the action that reads what another of its group changes, so that whoever may list a tenant's sites is told
// that it may not create one, rather than that there is no such tenant.
func readOf(action principal.Action) principal.Action {
	group := string(action)[:strings.LastIndexByte(string(action), ':')+1]
	return principal.Action(group + "read")
}

// missing words what the verbs in package commands say of a thing that was never there.
func missing(on commands.Resource) error {
	switch on.Kind {
	case commands.OnNode:
		return fault.New(fault.NotFound, "there is no node %s", on.Node)
	case commands.OnPool:
		return fault.New(fault.NotFound, "there is no pool %s", on.Pool)
	case commands.OnSite:
		return fault.New(fault.NotFound, "there is no site %s", on.Site)
	case commands.OnTenant:
		return fault.New(fault.NotFound, "there is no tenant %s", on.Tenant)
	default:
		return fault.New(fault.NotFound, "there is no such %s", on.Kind)
	}
}
