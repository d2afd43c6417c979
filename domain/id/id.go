// Package id names the typed, prefixed, sortable identifiers of every aggregate: node_01k…, wf_01k….
//
// They are TypeIDs (https://github.com/jetify-com/typeid/tree/main/spec): a prefix, an underscore and a UUID in
// lower-case Crockford base32. The package never draws randomness: callers hand in the UUID.
package id

import (
	"fmt"

	"github.com/google/uuid"
	"go.jetify.com/typeid"
)

type (
	nodePrefix         struct{}
	workflowPrefix     struct{}
	agentCommandPrefix struct{}
	tenantPrefix       struct{}
	sitePrefix         struct{}
	poolPrefix         struct{}
	principalPrefix    struct{}
	bindingPrefix      struct{}
	tokenPrefix        struct{}
	agentPrefix        struct{}
	joinTokenPrefix    struct{}
	imagePrefix        struct{}
)

// Prefix is what precedes the underscore in a node's id.
func (nodePrefix) Prefix() string { return "node" }

// Prefix is what precedes the underscore in a workflow's id.
func (workflowPrefix) Prefix() string { return "wf" }

// Prefix is what precedes the underscore in an agent command's id.
func (agentCommandPrefix) Prefix() string { return "cmd" }

// Prefix is what precedes the underscore in a tenant's id.
func (tenantPrefix) Prefix() string { return "tenant" }

// Prefix is what precedes the underscore in a site's id.
func (sitePrefix) Prefix() string { return "site" }

// Prefix is what precedes the underscore in a pool's id.
func (poolPrefix) Prefix() string { return "pool" }

// Prefix is what precedes the underscore in a principal's id.
func (principalPrefix) Prefix() string { return "prn" }

// Prefix is what precedes the underscore in a binding's id.
func (bindingPrefix) Prefix() string { return "bnd" }

// Prefix is what precedes the underscore in an access token's id.
func (tokenPrefix) Prefix() string { return "tok" }

// Prefix is what precedes the underscore in an agent's id.
func (agentPrefix) Prefix() string { return "agt" }

// Prefix is what precedes the underscore in a join token's id.
func (joinTokenPrefix) Prefix() string { return "jtk" }

// Prefix is what precedes the underscore in an image's id.
func (imagePrefix) Prefix() string { return "img" }

type (
	// Node identifies a machine.
	Node struct{ typeid.TypeID[nodePrefix] }
	// Workflow identifies one run of a profile.
	Workflow struct{ typeid.TypeID[workflowPrefix] }
	// AgentCommand identifies one order to one agent.
	AgentCommand struct {
		typeid.TypeID[agentCommandPrefix]
	}
	// Tenant identifies an owner of machines.
	Tenant struct{ typeid.TypeID[tenantPrefix] }
	// Site identifies a place with a network of BMCs.
	Site struct{ typeid.TypeID[sitePrefix] }
	// Pool identifies a group of nodes under one policy.
	Pool struct{ typeid.TypeID[poolPrefix] }
	// Principal identifies whoever calls the API: a person or a program.
	Principal struct{ typeid.TypeID[principalPrefix] }
	// Binding identifies one grant of actions to a principal.
	Binding struct{ typeid.TypeID[bindingPrefix] }
	// Token identifies one bearer token of a principal. It is not the token.
	Token struct{ typeid.TypeID[tokenPrefix] }
	// Agent identifies one agent: the agents of one node, in the ramdisk and in the installed OS, are one.
	Agent struct{ typeid.TypeID[agentPrefix] }
	// JoinToken identifies one token with which an agent joins. It is not the token.
	JoinToken struct{ typeid.TypeID[joinTokenPrefix] }
	// Image identifies one version of an image.
	Image struct{ typeid.TypeID[imagePrefix] }
)

// Kind is any of the id types of this package.
type Kind interface {
	typeid.Subtype
	comparable
}

// Parse reads an id of one kind. The error tells the prefix that was expected.
func Parse[T Kind, PT typeid.SubtypePtr[T]](s string) (T, error) {
	v, err := typeid.Parse[T, PT](s)
	if err != nil {
		var zero T
		return zero, fmt.Errorf("%q is not an id of the form %s_<26 characters>", bounded(s), zero.Prefix())
	}
	return v, nil
}

// Of gives the id of one kind that stands for u.
func Of[T Kind, PT typeid.SubtypePtr[T]](u uuid.UUID) T {
	v, err := typeid.FromUUIDBytes[T, PT](u[:])
	if err != nil { // a UUID is always sixteen bytes, the only thing that can be wrong
		panic(err)
	}
	return v
}

// IsZero reports whether v is the zero value of its kind.
func IsZero[T Kind](v T) bool {
	var zero T
	return v == zero
}

func bounded(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
