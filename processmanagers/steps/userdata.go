package steps

import (
	"context"
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

const actionRender = "userdata.render"

// tokenTTL is how long the installed OS has to join where the program does not say.
const tokenTTL = 2 * time.Hour

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
	template, err := c.userTemplate()
	if err != nil {
		return nil, err
	}
	ttl := c.Ports.Config.TokenTTL
	if ttl <= 0 {
		ttl = tokenTTL
	}
	token, secret, err := c.mint(ctx, jointoken.RoleProvisioned, "token", ttl)
	if err != nil {
		return nil, err
	}
	config := c.Ports.Config
	document, err := template.Render(Variables{
		NodeID: c.Node.ID.String(), Hostname: hostname(c.Node.ID), JoinToken: secret,
		GatewayURL: config.GatewayURL, CASHA256: config.CASHA256, AgentURL: config.AgentURL, AgentSHA256: config.AgentSHA,
	})
	if err != nil {
		return nil, err
	}
	ref, err := c.Ports.Secrets.Put(ctx, c.CommandKey("user-data"), document, c.Now.Add(ttl+documentKept))
	return rendered{Ref: ref, Kind: c.Profile.UserData.Kind, JoinToken: token}, err
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
