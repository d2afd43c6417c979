package sim

import (
	"context"
	"errors"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

// errBusy is what a controller answers while the machine can't do what was asked.
var errBusy = errors.New("the machine is off")

// Reset does what a Redfish reset type says. It does not wait for the machine.
func (m *Machine) Reset(t bmcsim.ResetType) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.site.ctx.Err() != nil {
		return errors.New("the site is closed")
	}
	m.say(KindPower, "reset "+string(t))
	on := m.state.On
	switch t {
	case bmcsim.On, bmcsim.ForceOn:
		if !on {
			m.powerOn()
		}
	case bmcsim.ForceOff:
		m.cutPower()
	case bmcsim.GracefulShutdown:
		m.ask(endOff)
	case bmcsim.GracefulRestart:
		if !on {
			return errBusy
		}
		m.ask(endRestart)
	case bmcsim.ForceRestart:
		if !on {
			return errBusy
		}
		m.cutPower()
		m.powerOn()
	case bmcsim.PowerCycle:
		m.cutPower()
		m.powerOn()
	case bmcsim.PushPowerButton:
		if on {
			m.ask(endOff)
		} else {
			m.powerOn()
		}
	case bmcsim.Nmi:
	default:
		return errors.New("there is no reset type " + string(t))
	}
	return nil
}

// powerOn begins a life, which starts once the one before is over. The lock is held.
func (m *Machine) powerOn() {
	ctx, end := context.WithCancelCause(m.site.ctx)
	before := m.life
	l := &life{ctx: ctx, end: end, on: &current{}, done: make(chan struct{})}
	m.life, m.state.On, m.running = l, true, Firmware
	m.state.Boots++
	m.state.Started = m.site.config.Clock.Now()
	m.say(KindPower, "on")
	go func() {
		defer close(l.done)
		defer end(nil)
		before.await()
		m.live(l)
	}()
}

// cutPower takes the current away at once: what ran gets no word, and nothing more of it reaches a disk. The lock is held.
func (m *Machine) cutPower() {
	if !m.state.On {
		return
	}
	m.life.on.cut()
	m.life.end(agent.ErrGone)
	m.off()
}

// off is the state without power. The lock is held.
func (m *Machine) off() {
	m.state.On, m.state.Posting, m.running, m.os, m.bootID, m.asking = false, false, Nothing, "", "", nil
	m.say(KindPower, "off")
}

// ask tells the running system to end in order, as the power button does. Firmware and a hung machine don't listen. The lock
// is held.
func (m *Machine) ask(e ending) {
	if m.asking == nil || m.faults.deaf {
		m.say(KindPower, "nothing listens to the power button")
		return
	}
	m.asking(e)
}

// powerOff is the machine switching itself off at the end of a life.
func (m *Machine) powerOff(l *life) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life == l && m.state.On {
		l.on.cut()
		m.off()
	}
}
