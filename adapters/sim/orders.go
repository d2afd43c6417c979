package sim

import (
	"slices"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/domain/agentcommand"
)

// Ordered is one order that an agent on a machine began to carry out: what really happened to the machine, whatever anybody
// else says.
type Ordered struct {
	At      time.Time             `json:"at"`
	BootID  string                `json:"bootId"`
	ID      string                `json:"id"`
	Kind    agentcommand.KindName `json:"kind"`
	Attempt int                   `json:"attempt"`
	Done    bool                  `json:"done"` // it came to its end, good or bad; false: it runs, or died
}

// maxOrders is how many orders a machine remembers.
const maxOrders = 2000

// Orders lists what the machine's agents began to carry out, over all its boots, the newest last.
func (m *Machine) Orders() []Ordered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.orders)
}

// begun notes an order that is being carried out.
func (b *boot) begun(o agent.Order) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	b.m.orders = append(b.m.orders, Ordered{
		At: b.m.site.config.Clock.Now(), BootID: b.id, ID: o.ID, Kind: o.Kind, Attempt: o.Attempt,
	})
	if len(b.m.orders) > maxOrders {
		b.m.orders = slices.Delete(b.m.orders, 0, len(b.m.orders)-maxOrders)
	}
}

// done notes that an order came to its end.
func (b *boot) done(o agent.Order) {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	for i := range slices.Backward(b.m.orders) {
		if b.m.orders[i].ID == o.ID && b.m.orders[i].BootID == b.id {
			b.m.orders[i].Done = true
			return
		}
	}
}
