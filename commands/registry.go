package commands

import (
	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/domain/workflow"
)

// Registry knows every event of every aggregate. An error is a name that two of them use.
func Registry() (*event.Registry, error) {
	return event.NewRegistry(
		agent.Events, agentcommand.Events, bootlease.Events, claim.Events, image.Events, image.PublicEvents, jointoken.Events,
		node.Events, pool.Events, principal.Events, profile.Events, site.Events, tenant.Events, workflow.Events,
	)
}
