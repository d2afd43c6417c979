package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// host is a machine as the agent of one boot sees it from inside.
type host struct{ b *boot }

var _ agent.Machine = host{}

// BootID is that of this boot.
func (h host) BootID() string { return h.b.id }

// Claims is who the machine is.
func (h host) Claims(context.Context) (protocol.Claims, error) {
	s := h.b.m.spec
	c := protocol.Claims{ProductUUID: s.UUID, Serial: s.Serial}
	for _, n := range h.b.m.nics() {
		c.MACs = append(c.MACs, n.MAC)
	}
	return c, nil
}

// Hardware is the inventory from inside.
func (h host) Hardware(context.Context) (node.Hardware, error) { return h.b.m.hardware(), nil }

// Disks are the machine's, for as long as it has power.
func (h host) Disks(context.Context) ([]disk.Device, error) {
	devices := make([]disk.Device, 0, len(h.b.m.drives))
	for _, d := range h.b.m.drives {
		devices = append(devices, port{d, h.b.l.on})
	}
	return devices, nil
}

// Burn takes no time: a simulated processor has nothing to warm up. Bad memory is found.
func (h host) Burn(ctx context.Context, kind agentcommand.KindName, with agentcommand.Burnin, progress disk.Progress,
) (agentcommand.Burned, error) {
	m := h.b.m
	m.mu.Lock()
	bad := m.faults.badMemory
	m.mu.Unlock()
	var out agentcommand.Burned
	switch kind {
	case agentcommand.BurninCPU:
		out.Parts = append(out.Parts, agentcommand.BurnedPart{Name: "cpu", Took: with.Duration})
	case agentcommand.BurninMemory:
		part := agentcommand.BurnedPart{Name: "memory", Bytes: m.spec.MemoryBytes, Took: with.Duration}
		if with.Bytes > 0 {
			part.Bytes = min(part.Bytes, with.Bytes)
		}
		if bad {
			part.Errors, part.Detail = 3, "wrong bits at 0x7f3a2000"
		}
		out.Parts = append(out.Parts, part)
	default:
		return out, fault.New(fault.DriverError, "a simulated machine can't burn in %s", kind)
	}
	progress(100, "")
	return out, ctx.Err()
}

// Kexec starts the OS on a disk.
func (h host) Kexec(_ context.Context, diskKey string) error {
	m := h.b.m
	for _, d := range m.drives {
		if diskKey != "" && d.Info().Key() != diskKey {
			continue
		}
		if _, ok := osName(port{d, h.b.l.on}); ok {
			h.b.end(endKexec, d.Info().Key())
			return nil
		}
	}
	return fault.New(fault.DriverError, "there is no OS on disk %q to start", diskKey)
}

// Reboot starts the machine again.
func (h host) Reboot(context.Context) error {
	h.b.end(endRestart, "")
	return nil
}

// PowerOff switches it off.
func (h host) PowerOff(context.Context) error {
	h.b.end(endOff, "")
	return nil
}

// nics are the machine's ports in the order in which it finds them.
func (m *Machine) nics() []node.NIC {
	m.mu.Lock()
	defer m.mu.Unlock()
	nics := append([]node.NIC(nil), m.spec.NICs...)
	if m.faults.wrongNICOrder {
		for i, j := 0, len(nics)-1; i < j; i, j = i+1, j-1 {
			nics[i].MAC, nics[j].MAC = nics[j].MAC, nics[i].MAC
		}
	}
	return nics
}

// runAgent runs the agent until the program ends. An agent that ends by itself leaves the machine on, with nobody to talk to.
func (b *boot) runAgent(o agent.Options) {
	m := b.m
	ctx, kill := context.WithCancelCause(b.ctx)
	defer kill(nil)
	o.Machine, o.BootID, o.Version, o.Now, o.Room = host{b}, b.id, m.site.config.Version, m.site.config.Clock.Now, 1
	if o.Name == "" {
		o.Name = m.spec.Name
	}
	o.Backoff, o.Grace = agent.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}, 2*time.Second
	o.Logger = m.site.config.Logger.With("machine", m.spec.Name)
	o.Kinds = b.mortal(agent.MachineHandlers(agent.MachineDeps{
		Machine: o.Machine, Images: m.site.config.HTTP, Seed: b.samples(), Role: o.Role,
	}), kill)
	m.tell(KindAgent, "start as "+string(o.Role))
	err := m.site.config.Run(ctx, o)
	if b.ctx.Err() == nil {
		text := "ended"
		if err != nil && ctx.Err() == nil {
			text += ": " + err.Error()
		}
		m.tell(KindAgent, text)
	}
	<-b.ctx.Done()
}

// samples chooses the blocks that are read back: others at each boot, the same ones under the same seed.
func (b *boot) samples() func() uint64 {
	return rand.New(rand.NewChaCha8(draw(b.m.site.config.Seed, b.m.spec.Name, "samples", b.id))).Uint64 //nolint:gosec // no secret
}

// mortal lets the agent die, or hang, at the orders that a fault names.
func (b *boot) mortal(kinds map[agentcommand.KindName]agent.Handler, kill context.CancelCauseFunc,
) map[agentcommand.KindName]agent.Handler {
	out := make(map[agentcommand.KindName]agent.Handler, len(kinds))
	for kind, handle := range kinds {
		out[kind] = func(ctx context.Context, o agent.Order) (any, func(context.Context) error, error) {
			b.begun(o)
			dies, after := b.m.dies(kind)
			if dies && !after {
				kill(agent.ErrGone)
				<-ctx.Done()
				return nil, nil, context.Cause(ctx)
			}
			if b.m.hangs(kind) {
				b.m.tell(KindFault, "the agent hangs at "+string(kind))
				<-ctx.Done()
				return nil, nil, context.Cause(ctx)
			}
			result, then, err := handle(ctx, o)
			if ctx.Err() == nil {
				b.done(o)
			}
			if dies {
				kill(agent.ErrGone)
				<-ctx.Done()
				return nil, nil, context.Cause(ctx)
			}
			return result, then, err
		}
	}
	return out
}
