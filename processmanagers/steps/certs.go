package steps

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/profile"
)

type revoked struct {
	Revoked bool `json:"revoked"`
}

func certSteps() []Step {
	return []Step{Define(profile.Spec{
		ID: "certs.revoke", Timeout: time.Minute,
		Summary: "Takes every certificate of the machine's agents: none of them is let in any more.",
	}, func(ctx context.Context, c *Context, _ None) (any, error) {
		if c.Ports.Agents == nil {
			return nil, c.lacks("agents")
		}
		err := c.Ports.Agents.Revoke(ctx, c.Node.ID, "workflow "+c.Workflow.Workflow.String())
		return revoked{Revoked: err == nil}, err
	})}
}
