package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/processmanagers/steps"
)

// Machine is a server with its BMC, its site and its agents, as far as the shipped profiles look: it boots what it is told
// to, wipes its disk, and runs what was written to it.
type Machine struct {
	Number    int // that it is enrolled by
	Power     node.Power
	FromNet   bool // at its next boot
	Entry     bool // the site has a boot entry for it
	Installed bool
	Wipes     int
	Writes    int
	boots     int
}

// Answers is the machine as a script of a world.
func (m *Machine) Answers(w *World, c agentcommand.State) Answer { return m.Do(w.Agents, c) }

// Do carries out what an agent of the machine, or of its site, is asked for.
func (m *Machine) Do(agents *Agents, c agentcommand.State) Answer {
	switch c.Kind {
	case agentcommand.DriverInvoke:
		return m.invoke(agents, c)
	case agentcommand.BootEntrySet, agentcommand.BootEntryClear:
		m.Entry = c.Kind == agentcommand.BootEntrySet
		return Answer{Result: map[string]any{}}
	case agentcommand.InspectHardware:
		return Answer{Result: m.hardware()}
	case agentcommand.BurninCPU, agentcommand.BurninMemory, agentcommand.BurninDisk, agentcommand.BurninGPU:
		return Answer{Signed: true, Result: agentcommand.Burned{Parts: []agentcommand.BurnedPart{{Name: string(c.Kind)}}}}
	case agentcommand.DiskWipe:
		return m.wipe(c)
	case agentcommand.ImageWrite:
		return m.write(c)
	case agentcommand.BootKexec, agentcommand.NodeReboot:
		return m.boot(agents, c, Answer{})
	default:
		return Answer{Status: agentcommand.Rejected, Reason: "there is no such kind"}
	}
}

// mac is the address of the number-th machine's one port.
func mac(number int) string { return fmt.Sprintf("b8:ce:f6:00:%02x:%02x", number>>8, number&0xff) }

// disk is the one that every machine has.
var disk = node.Disk{Path: "/dev/vda", WWN: "0x5000c500a0000001", Bytes: 1 << 34}

func (m *Machine) hardware() node.Hardware {
	return node.Hardware{
		Manufacturer: "Contoso", Product: "C1", Serial: fmt.Sprintf("S%d", m.Number),
		UUID: fmt.Sprintf("5a1f0c5e-0000-4000-8000-%012x", m.Number), Cores: 8, MemoryBytes: 1 << 34,
		Disks: []node.Disk{disk}, NICs: []node.NIC{{MAC: mac(m.Number), Name: "eth0"}},
	}
}

func (m *Machine) wipe(c agentcommand.State) Answer {
	var asked agentcommand.WipeDisks
	decode(c.Payload, &asked)
	m.Installed = false
	m.Wipes++
	disks := []node.WipedDisk{{Disk: disk, Method: node.WipeMethod(asked.Method), ReadBack: true}}
	return Answer{Signed: true, Result: map[string]any{"disks": disks}}
}

func (m *Machine) write(c agentcommand.State) Answer {
	var asked agentcommand.WriteImage
	decode(c.Payload, &asked)
	m.Installed = true
	m.Writes++
	return Answer{Signed: true, Result: agentcommand.WrittenImage{
		Disk: disk.Key(), Path: "/dev/vda", Digest: asked.Digest, Bytes: asked.Bytes, ReadBack: asked.ReadBack,
	}}
}

// boot turns the machine on, into whatever is there to boot.
func (m *Machine) boot(agents *Agents, c agentcommand.State, a Answer) Answer {
	m.Power = node.PowerOn
	m.boots++
	switch {
	case m.FromNet && m.Entry:
		a.Boot, a.Role = fmt.Sprintf("ramdisk-%d", m.boots), agentcommand.RoleRamdisk
	case m.Installed:
		a.Boot, a.Role = fmt.Sprintf("installed-%d", m.boots), agentcommand.RoleNode
	default:
		agents.Gone(c.Node)
	}
	m.FromNet = false
	return a
}

func (m *Machine) invoke(agents *Agents, c agentcommand.State) Answer {
	var asked agentcommand.Invoke
	decode(c.Payload, &asked)
	var result any = map[string]any{}
	a := Answer{}
	switch asked.Concern + "." + asked.Operation {
	case "bmc.identify":
		result = map[string]any{"systemId": "1", "uuid": m.hardware().UUID, "serial": m.hardware().Serial, "power": m.Power}
	case "power.get":
		result = map[string]any{"power": m.Power}
	case "power.setPower":
		var with struct{ Action node.PowerAction }
		decode(asked.With, &with)
		a = m.setPower(agents, c, with.Action)
		result = map[string]any{"power": m.Power, "changed": true}
	case "management.setBootDevice":
		var with struct{ Device string }
		decode(asked.With, &with)
		m.FromNet = with.Device == "network"
		result = asked.With
	case "inspect.outOfBand":
		result = map[string]any{"hardware": m.hardware()}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	a.Result = agentcommand.Invoked{Result: raw}
	return a
}

func (m *Machine) setPower(agents *Agents, c agentcommand.State, action node.PowerAction) Answer {
	if action == node.ActionOff || action == node.ActionGraceful {
		m.Power = node.PowerOff
		agents.Gone(c.Node)
		return Answer{}
	}
	return m.boot(agents, c, Answer{})
}

// Config is what a world with a machine is set to.
func Config() steps.Config {
	return steps.Config{
		GatewayURL: "https://gateway.example:8443", CASHA256: strings.Repeat("ca", 32), Kernel: "vmlinuz", Initrd: "initrd.img",
	}
}

func decode(raw json.RawMessage, into any) {
	if len(raw) == 0 {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		panic(fmt.Sprintf("%s: %v", raw, err))
	}
}
