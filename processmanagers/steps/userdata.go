package steps

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

const actionRender = "userdata.render"

// tokenTTL is how long the installed OS has to join where the program does not say.
const tokenTTL = 2 * time.Hour

// longestToken bounds what the steps add to that.
const longestToken = 30 * 24 * time.Hour

// documentKept is how long user data outlives the token in it: a template that uses none is good for a deploy that takes longer,
// or that an operator retries from where it failed.
const documentKept = 24 * time.Hour

// rendered is the result of userdata.render: where the document is, never the document.
type rendered struct {
	Ref       node.SecretRef `json:"userDataRef"`
	Kind      string         `json:"kind"`
	JoinToken id.JoinToken   `json:"joinTokenId"`
}

func userDataSteps() []Step {
	return []Step{WithPreflight(Define(profile.Spec{
		ID: actionRender, Timeout: time.Minute,
		Summary: "Renders the profile's user data with a fresh single-use token, and keeps it as a secret.",
	}, renderUserData), func(_ context.Context, c *Context, _ None) error {
		_, err := c.userTemplate()
		return err
	})}
}

// userTemplate is the template of the profile's user data.
func (c *Context) userTemplate() (Template, error) {
	wanted := c.Profile.UserData
	switch {
	case wanted == nil:
		return nil, fault.New(fault.InvalidConfig, "the profile names no user data").WithDetail("path", "userData")
	case c.Ports.Secrets == nil:
		return nil, c.lacks("secrets")
	case c.Ports.Config.GatewayURL == "":
		return nil, c.lacks("config.gatewayUrl")
	case c.Ports.Config.AgentURL != "" && c.Ports.Config.AgentSHA == "":
		return nil, c.lacks("config.agentSha256")
	}
	return c.Ports.Config.template(*wanted)
}

func renderUserData(ctx context.Context, c *Context, _ None) (any, error) {
	return c.renderUserData(ctx, c.Step.ID)
}

// renderUserData renders the document that belongs to a step's place in the workflow, under the keys of the present step.
func (c *Context) renderUserData(ctx context.Context, at string) (rendered, error) {
	template, err := c.userTemplate()
	if err != nil {
		return rendered{}, err
	}
	ttl := c.tokenLife(at)
	token, secret, err := c.mint(ctx, jointoken.RoleProvisioned, "token", ttl)
	if err != nil {
		return rendered{}, err
	}
	config := c.Ports.Config
	document, err := template.Render(Variables{
		NodeID: c.Node.ID.String(), Hostname: hostname(c.Node.ID), JoinToken: secret,
		GatewayURL: config.GatewayURL, CASHA256: config.CASHA256, AgentURL: config.AgentURL, AgentSHA256: config.AgentSHA,
	})
	if err != nil {
		return rendered{}, err
	}
	ref, err := c.Ports.Secrets.Put(ctx, c.CommandKey("user-data"), document, c.Now.Add(ttl+documentKept))
	return rendered{Ref: ref, Kind: c.Profile.UserData.Kind, JoinToken: token}, err
}

// tokenLife is how long a token is good that is made by a step: what the installed OS has to join, and what the steps may take that
// come before. It lets in this machine only, while the workflow is the node's.
func (c *Context) tokenLife(made string) time.Duration {
	life, reached := c.timeToJoin(), false
	for _, s := range c.Workflow.Steps {
		if reached && s.Phase == workflow.Main {
			const jitter = 2 // a pause may be half as long again
			life = min(life+time.Duration(s.Retries+1)*(s.Timeout+jitter*s.RetryDelay), longestToken)
		}
		reached = reached || s.ID == made
	}
	return life
}

func (c *Context) timeToJoin() time.Duration {
	if ttl := c.Ports.Config.TokenTTL; ttl > 0 {
		return ttl
	}
	return tokenTTL
}

// freshUserData is the document to write: the one that was rendered, or another where the token in it would be over when the
// installed OS wants to join, as after a retry of the workflow on another day.
func (c *Context) freshUserData(ctx context.Context, data rendered) (rendered, error) {
	made := c.newest(actionRender)
	if made == nil || made.StartedAt.IsZero() || c.Profile.UserData == nil {
		return data, nil
	}
	over := made.StartedAt.Add(c.tokenLife(made.ID))
	if !c.Deadline.Add(c.timeToJoin() / 2).After(over) {
		return data, nil
	}
	return c.renderUserData(ctx, c.Step.ID)
}

// builtin are the templates of the kinds that need none by name.
var builtin = map[string]Template{"cloud-init": cloudInit{}, "ignition": ignition{}}

// template is the one that is registered under a name, else the built-in one of the kind.
func (c Config) template(wanted profile.UserData) (Template, error) {
	if wanted.Template != "" {
		if t := c.Templates[wanted.Template]; t != nil {
			return t, nil
		}
		return nil, fault.New(fault.InvalidConfig, "there is no user-data template named %q", wanted.Template).
			WithDetail("path", "userData.template").WithRemedy("register the template with the program, or correct the name")
	}
	if t := builtin[wanted.Kind]; t != nil {
		return t, nil
	}
	return nil, fault.New(fault.InvalidConfig, "user data of kind %q needs a template: only cloud-init and ignition have one",
		wanted.Kind).WithDetail("path", "userData.template")
}
