package steps

import "github.com/better-compute/metal/domain/profile"

// Specs lists what a profile must know about each step, by name.
func (c *Catalog) Specs() []profile.Spec {
	specs := make([]profile.Spec, 0, len(c.steps))
	for _, id := range c.IDs() {
		specs = append(specs, c.steps[id].Spec)
	}
	return specs
}
