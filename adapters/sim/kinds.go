package sim

import (
	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/domain/agentcommand"
)

func kinds(m agent.Machine) map[agentcommand.KindName]agent.Handler { return nil }
