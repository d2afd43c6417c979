package steps

import (
	"context"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
)

// discoveryToken is the token of a boot entry, and dies with it: the same for the same name and attempt.
func (c *Context) discoveryToken(ctx context.Context, name string, until time.Time) (id.JoinToken, string, error) {
	return c.mint(ctx, jointoken.RoleDiscovery, name, until.Sub(c.Now))
}

// mint makes a single-use token with which nothing but this machine can join: one that is overheard on the boot network is of
// no use elsewhere.
func (c *Context) mint(ctx context.Context, role jointoken.Role, name string, ttl time.Duration) (id.JoinToken, string, error) {
	if c.Ports.Tokens == nil {
		return id.JoinToken{}, "", c.lacks("tokens")
	}
	t := JoinToken{
		Key: c.CommandKey(name), Role: string(role), Node: c.Node, Workflow: c.Workflow.Workflow, MACs: c.macs(), TTL: ttl,
	}
	// What the machine told of itself is what it will tell again; its controller is asked where it has told nothing yet.
	if in := c.Node.Hardware.InBand; in != nil {
		t.UUID, t.Serial = in.UUID, in.Serial
	} else if out := c.Node.Hardware.OutOfBand; out != nil {
		t.UUID = out.UUID
	}
	if blankUUID(t.UUID) {
		t.UUID = ""
	}
	return c.Ports.Tokens.Mint(ctx, t)
}

// blankUUID tells a UUID that firmware gives where nobody set one: the machine's own may come from elsewhere.
func blankUUID(uuid string) bool {
	return strings.Trim(uuid, "0-") == "" || strings.Trim(strings.ToLower(uuid), "f-") == ""
}
