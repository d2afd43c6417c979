package sim

import (
	"context"
	"strconv"
	"strings"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

// ending is how a program ends.
type ending int

const (
	endHung    ending = iota // it does not: the machine stays as it is until its power is cut
	endOff                   // the machine switches off
	endRestart               // the firmware starts again
	endKexec                 // the OS on a disk starts, without the firmware
)

// program is something that runs on a booted machine, until ctx ends or it ends itself.
type program struct {
	running Running
	os      string
	run     func(b *boot) // returns when it is over; see boot.end
}

// boot is one start of a program.
type boot struct {
	m    *Machine
	l    *life
	id   string
	ctx  context.Context
	stop context.CancelFunc
	then ending
	disk string // to kexec
	quit bool   // the end was asked for
}

// live is one life: from POST to the end of power.
func (m *Machine) live(l *life) {
	for l.ctx.Err() == nil {
		p, ok := m.firmware(l)
		if !ok {
			m.hang(l)
			return
		}
		switch m.chain(l, p) {
		case endOff:
			m.powerOff(l)
			return
		case endRestart:
		case endHung, endKexec:
			m.hang(l)
			return
		}
	}
}

// chain runs a program, and those that start in its place.
func (m *Machine) chain(l *life, p program) ending {
	for {
		then, key := m.execute(l, p)
		if then != endKexec {
			return then
		}
		next, ok := m.diskOS(l, key)
		if !ok {
			return endRestart // there is nothing to start: the machine is reset
		}
		p = next
	}
}

// hang is a machine that is on and does nothing.
func (m *Machine) hang(l *life) {
	m.mu.Lock()
	if m.life == l {
		m.asking = nil
		m.wake()
	}
	m.mu.Unlock()
	<-l.ctx.Done()
}

// firmware is POST, and the choice of what to boot.
func (m *Machine) firmware(l *life) (program, bool) {
	delays, clock := m.site.config.Delays, m.site.config.Clock
	m.during(l, func() {
		m.running, m.os, m.bootID, m.asking, m.state.Posting = Firmware, "", "", nil, true
		m.say(KindPOST, "self-test")
	})
	if clock.Sleep(l.ctx, delays.POST) != nil {
		return program{}, false
	}
	var override bmcsim.Boot
	hung := false
	m.during(l, func() {
		m.state.Posting = false
		override = m.state.Boot
		if override.Enabled == "Once" {
			m.state.Boot = bmcsim.Boot{Enabled: "Disabled", Target: "None", Mode: override.Mode}
		}
		if hung = m.faults.hungBoots > 0; hung {
			m.faults.hungBoots--
			m.say(KindFault, "hung after the self-test")
		}
	})
	if hung {
		return program{}, false
	}
	return m.choose(l, override)
}

// during changes the machine while l is its life.
func (m *Machine) during(l *life, change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life == l && m.state.On {
		change()
	}
}

// choose looks where the override says, then in the boot order.
func (m *Machine) choose(l *life, override bmcsim.Boot) (program, bool) {
	var order []Device
	switch target := override.Target; {
	case override.Enabled == "Disabled" || target == "None" || target == "":
		order = m.order("")
	case target == "Pxe":
		order = m.order(FromNetwork)
	case target == "Hdd":
		order = m.order(FromDisk)
	case target == "BiosSetup":
		m.tell(KindBoot, "setup")
		return program{}, false
	default:
		if p, ok := m.special(l, override); ok {
			return p, true
		}
		order = m.order("")
	}
	for _, device := range order {
		var p program
		var ok bool
		if device == FromNetwork {
			p, ok = m.network(l)
		} else {
			p, ok = m.diskOS(l, "")
		}
		if ok || l.ctx.Err() != nil {
			return p, ok
		}
	}
	m.during(l, func() {
		m.running = Nothing
		m.say(KindBoot, "nothing to boot")
	})
	return program{}, false
}

// special boots from what an override alone can name: a URL, or the medium in a virtual drive.
func (m *Machine) special(l *life, override bmcsim.Boot) (program, bool) {
	if override.Target == "UefiHttp" {
		if override.HTTPURI == "" {
			return m.network(l)
		}
		return m.script(l, override.HTTPURI)
	}
	if !strings.HasSuffix(override.Target, "Cd") && override.Target != "Usb" {
		return program{}, false
	}
	for _, media := range m.State().Media {
		if media.Inserted {
			return m.script(l, media.Image)
		}
	}
	return program{}, false
}

// execute runs a program and tells how it ended.
func (m *Machine) execute(l *life, p program) (ending, string) {
	b := &boot{m: m, l: l}
	b.ctx, b.stop = context.WithCancel(l.ctx)
	defer b.stop()
	m.during(l, func() {
		m.boots++
		b.id = drawUUID(m.site.config.Seed, m.spec.Name, "boot", strconv.Itoa(m.boots))
		m.running, m.os, m.bootID = p.running, p.os, b.id
		m.say(KindBoot, "start of "+string(p.running)+" "+p.os)
	})
	if b.id == "" || m.site.config.Clock.Sleep(b.ctx, m.site.config.Delays.Boot) != nil {
		return endHung, ""
	}
	m.during(l, func() { m.asking = b.asked })
	p.run(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life == l {
		m.asking = nil
	}
	return b.then, b.disk
}

// asked ends the program in order, after the time that this takes. The machine's lock is held.
func (b *boot) asked(e ending) {
	b.m.asking = nil
	b.m.site.busy.Go(func() {
		if b.m.site.config.Clock.Sleep(b.ctx, b.m.site.config.Delays.Shutdown) == nil {
			b.end(e, "")
		}
	})
}

// end ends the program, and says what comes after it. The first end counts.
func (b *boot) end(e ending, disk string) {
	b.m.mu.Lock()
	if !b.quit {
		b.quit, b.then, b.disk = true, e, disk
	}
	b.m.mu.Unlock()
	b.stop()
}
