package steps

import (
	"maps"
	"regexp"
	"slices"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile"
)

// Catalog holds the steps of a program by id. It never changes, so it is safe for concurrent use.
type Catalog struct{ steps map[string]Step }

// NewCatalog joins lists of steps, such as Shipped and a program's own. A definition that is not whole is INVALID_CONFIG, with the
// step's field in details.path.
func NewCatalog(kinds []agentcommand.Kind, lists ...[]Step) (*Catalog, error) {
	c := &Catalog{steps: map[string]Step{}}
	for _, step := range slices.Concat(lists...) {
		if err := checkStep(kinds, step); err != nil {
			return nil, err
		}
		if _, doubled := c.steps[step.ID]; doubled {
			return nil, defect(step, "id", "is taken by another step")
		}
		c.steps[step.ID] = step
	}
	for _, step := range c.steps {
		if on := step.Cleanup; on != nil {
			if _, known := c.steps[on.Use]; !known {
				return nil, defect(step, "cleanup.use", "names no step of the catalog")
			}
		}
	}
	return c, nil
}

// Find gives what a profile must know about a step.
func (c *Catalog) Find(id string) (profile.Spec, bool) {
	step, ok := c.steps[id]
	return step.Spec, ok
}

// Step gives a whole definition.
func (c *Catalog) Step(id string) (Step, bool) {
	step, ok := c.steps[id]
	return step, ok
}

// IDs lists the steps by name.
func (c *Catalog) IDs() []string { return slices.Sorted(maps.Keys(c.steps)) }

var stepID = regexp.MustCompile(`^[a-z][A-Za-z0-9-]*(\.[a-z][A-Za-z0-9-]*)+$`)

func checkStep(kinds []agentcommand.Kind, s Step) error {
	switch {
	case !stepID.MatchString(s.ID):
		return defect(s, "id", "is not of the form family.step")
	case s.Timeout <= 0:
		return defect(s, "timeout", "is needed")
	case s.Retries < 0 || s.RetryDelay < 0:
		return defect(s, "retries", "is negative")
	case s.Check == nil:
		return defect(s, "check", "is needed: make the step with Define or Agent")
	case s.RunsOn == profile.OnControlPlane:
		return checkControlPlane(kinds, s)
	}
	return checkAgentStep(kinds, s)
}

func checkControlPlane(kinds []agentcommand.Kind, s Step) error {
	switch {
	case s.Run == nil:
		return defect(s, "run", "is needed on the control plane")
	case s.Command != "":
		return defect(s, "command", "is for agent steps: name what the step sends in sends")
	case s.Payload != nil || s.Settled != nil:
		return defect(s, "payload", "is for agent steps")
	case len(s.Relays) > 0 && len(s.Sends) == 0:
		return defect(s, "sends", "is needed for a step that relays")
	case slices.Contains(s.Relays, profile.OnControlPlane):
		return defect(s, "relays", "names agents")
	}
	for _, sent := range s.Sends {
		if _, known := agentcommand.Find(kinds, agentcommand.KindName(sent)); !known {
			return defect(s, "sends", "names the unknown agent command kind "+sent)
		}
	}
	return nil
}

func checkAgentStep(kinds []agentcommand.Kind, s Step) error {
	kind, known := agentcommand.Find(kinds, agentcommand.KindName(s.Command))
	switch {
	case s.RunsOn != profile.OnSite && s.RunsOn != profile.OnRamdisk && s.RunsOn != profile.OnNode:
		return defect(s, "runsOn", "is none of control-plane, site, ramdisk, node")
	case s.Run != nil:
		return defect(s, "run", "is for control-plane steps: the agent has the code")
	case len(s.Sends) > 0:
		return defect(s, "sends", "is for control-plane steps: command names what an agent step sends")
	case len(s.Relays) > 0:
		return defect(s, "relays", "is for control-plane steps")
	case !known:
		return defect(s, "command", "names no agent command kind")
	case !slices.Contains(kind.RunsOn, agentcommand.Role(s.RunsOn)):
		return defect(s, "runsOn", "is no agent that carries out "+s.Command)
	case kind.SelfTerminating && !s.Rejoin:
		return defect(s, "rejoin", "is needed: "+s.Command+" ends the agent that runs it")
	}
	return nil
}

func defect(s Step, path, what string) error {
	return fault.New(fault.InvalidConfig, "step %q: %s %s", s.ID, path, what).
		WithDetail("step", s.ID).WithDetail("path", path)
}

// Shipped lists the steps that come with the product.
func Shipped() []Step {
	return slices.Concat(
		bmcSteps(), powerSteps(), mediaSteps(), bootSteps(), ramdiskSteps(), inspectSteps(), burninSteps(), diskSteps(),
		deploySteps(), userDataSteps(), waitSteps(), httpSteps(), certSteps(),
	)
}
