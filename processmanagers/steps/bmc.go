package steps

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// identity is what the steps read of a driver's answer to bmc.identify.
type identity struct {
	SystemID     string     `json:"systemId"`
	UUID         string     `json:"uuid,omitempty"`
	Serial       string     `json:"serial,omitempty"`
	Manufacturer string     `json:"manufacturer,omitempty"`
	Model        string     `json:"model,omitempty"`
	BIOSVersion  string     `json:"biosVersion,omitempty"`
	Firmware     string     `json:"managerFirmware,omitempty"`
	Power        node.Power `json:"power,omitempty"`
	Health       string     `json:"health,omitempty"`
	Weak         []string   `json:"weak,omitempty"` // claims that look made up
}

// relaying fills in what the steps that drive a BMC have alike.
func relaying(id, summary string, timeout time.Duration) profile.Spec {
	return profile.Spec{
		ID: id, Summary: summary, Timeout: timeout,
		Relays: []profile.Where{profile.OnSite}, Sends: []string{string(agentcommand.DriverInvoke)},
	}
}

func bmcSteps() []Step {
	return []Step{
		Define(relaying("bmc.verify", "Logs in to the BMC, checks that it is still the same machine, and pins its certificate.",
			5*time.Minute), verifyBMC),
		Define(relaying("bmc.identify", "Asks the BMC who the machine is.", 5*time.Minute), identifyBMC),
	}
}

func identifyBMC(ctx context.Context, c *Context, _ None) (any, error) {
	is, _, err := invoke[identity](ctx, c, operation{concern: "bmc", verb: "identify"})
	return is, err
}

// verifyBMC holds a node whose BMC answers for another machine than the one that was inspected. The certificate is checked and
// pinned by what invoke learns.
func verifyBMC(ctx context.Context, c *Context, _ None) (any, error) {
	is, _, err := invoke[identity](ctx, c, operation{concern: "bmc", verb: "identify"})
	if err != nil {
		return nil, err
	}
	if err := is.matches(c.Node.Hardware.OutOfBand); err != nil {
		return nil, err
	}
	// A controller may list another system one day, such as a card's. The machine is known by the id that stands in every
	// answer: a UUID is empty on some controllers while the machine is off.
	if err := c.learned(ctx, node.BMCLearned{System: is.SystemID}); err != nil {
		return nil, err
	}
	return is, c.observe(ctx, is.Power)
}

// matches compares with the inventory that the same controller gave earlier. A claim that only one side has says nothing.
func (i identity) matches(known *node.Hardware) error {
	if known == nil {
		return nil
	}
	differ, same := []string{}, false
	for _, claim := range []struct{ name, told, known string }{{"uuid", i.UUID, known.UUID}, {"serial", i.Serial, known.Serial}} {
		switch {
		case claim.told == "" || claim.known == "" || slices.Contains(i.Weak, claim.name):
		case strings.EqualFold(claim.told, claim.known):
			same = true
		default:
			differ = append(differ, claim.name)
		}
	}
	if same || len(differ) == 0 {
		return nil
	}
	return fault.New(fault.DriverError, "the BMC answers for another machine: its %s differs", strings.Join(differ, " and ")).
		WithDetail("reason", "machine-changed").WithDetail("differs", differ).
		WithRemedy("check the BMC's address; enroll a machine that replaces another as a new node")
}
