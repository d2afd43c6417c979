package steps

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/workflow"
)

const (
	actionEntry         = "boot.entry"
	actionClear         = "boot.clear"
	actionEnsureRamdisk = "metal.ensureRamdisk"
)

// BootEntry is the input of boot.entry.
type BootEntry struct {
	TTL profile.Duration `json:"ttl,omitempty" doc:"how long the machine may take to boot; left out: 2 hours"`
}

// Check refuses a time below zero.
func (b *BootEntry) Check() []fault.Issue {
	if b.TTL < 0 {
		return []fault.Issue{{Path: "ttl", Message: "is negative"}}
	}
	return nil
}

// entryTTL is how long an entry lives that nobody clears.
const entryTTL = 2 * time.Hour

// entrySet is the result of boot.entry.
type entrySet struct {
	BootEntry bool         `json:"bootEntry"`
	MACs      []string     `json:"macs"`
	JoinToken id.JoinToken `json:"joinTokenId"`
	URL       string       `json:"url,omitempty"` // of the image that media.insert may take from here
}

type entryCleared struct {
	Cleared bool `json:"cleared"`
	Ejected bool `json:"ejected,omitempty"`
}

func bootSteps() []Step {
	onSite := []profile.Where{profile.OnSite}
	return []Step{
		Define(profile.Spec{
			ID: actionEntry, Timeout: 10 * time.Minute, Relays: onSite, Sends: []string{string(agentcommand.BootEntrySet)},
			Cleanup: &profile.Step{Use: actionClear},
			Summary: "Has the site boot the machine into the ramdisk when it next boots from the network, or from a drive that media.insert " +
				"fills from this step.",
		}, setEntryStep),
		Define(profile.Spec{
			ID: actionClear, Timeout: 2 * time.Minute, Relays: onSite,
			Sends:   []string{string(agentcommand.BootEntryClear), string(agentcommand.DriverInvoke)},
			Summary: "Takes the machine's boot entry away, and what a step booted it from out of its drive: it boots from its next device.",
		}, clearEntry),
		Agent(profile.Spec{
			ID: "boot.kexec", RunsOn: profile.OnRamdisk, Command: string(agentcommand.BootKexec), Rejoin: true,
			Timeout: 20 * time.Minute,
			Summary: "Starts the installed OS from the ramdisk, and waits until its agent joins.",
		}, Hooks[None]{Payload: kexec}),
		Agent(profile.Spec{
			ID: "node.reboot", RunsOn: profile.OnNode, Command: string(agentcommand.NodeReboot), Rejoin: true,
			Timeout: 20 * time.Minute,
			Summary: "Reboots the machine from its OS, and waits until its agent is back.",
		}, Hooks[None]{}),
	}
}

func setEntryStep(ctx context.Context, c *Context, in BootEntry) (any, error) {
	ttl := time.Duration(in.TTL)
	if ttl == 0 {
		ttl = entryTTL
	}
	until := c.Step.StartedAt.Add(ttl)
	kept, err := c.setEntry(ctx, "", "token", until)
	if err != nil {
		return nil, err
	}
	token, _, err := c.discoveryToken(ctx, "token", until)
	return entrySet{BootEntry: true, MACs: c.macs(), JoinToken: token, URL: kept.MediumURL}, err
}

// setEntry sets a boot entry with a fresh single-use token for this machine, once per name and attempt.
func (c *Context) setEntry(ctx context.Context, name, tokenName string, until time.Time) (agentcommand.BootEntryKept, error) {
	done, err := c.await(ctx, Order{
		Kind: agentcommand.BootEntrySet, Role: agentcommand.RoleSite, Name: name,
		Make: func() (any, error) { return c.bootEntry(ctx, tokenName, until) },
	})
	if err != nil {
		return agentcommand.BootEntryKept{}, err
	}
	return decodeResult[agentcommand.BootEntryKept](string(agentcommand.BootEntrySet), done.Result)
}

func (c *Context) bootEntry(ctx context.Context, tokenName string, until time.Time) (agentcommand.BootEntry, error) {
	none := agentcommand.BootEntry{}
	macs := c.macs()
	switch {
	case len(macs) == 0:
		return none, fault.New(fault.InvalidState, "no MAC address of the machine is known, so it can't be booted from the network").
			WithRemedy("enroll the machine with its MAC addresses: its BMC tells none")
	case c.Ports.Config.Kernel == "" || c.Ports.Config.Initrd == "":
		return none, c.lacks("config.kernel and config.initrd")
	case c.Ports.Secrets == nil:
		return none, c.lacks("secrets")
	}
	_, token, err := c.discoveryToken(ctx, tokenName, until)
	if err != nil {
		return none, err
	}
	ref, err := c.Ports.Secrets.Put(ctx, c.CommandKey(tokenName), []byte(token), until)
	if err != nil {
		return none, err
	}
	return agentcommand.BootEntry{
		NodeID: c.Node.ID.String(), MACs: macs, TokenRef: string(ref),
		Kernel: c.Ports.Config.Kernel, Initrd: c.Ports.Config.Initrd, Args: c.Ports.Config.KernelArgs,
		ExpiresAt: until.UTC(),
	}, nil
}

// macs are the addresses that the machine may boot from: those it was enrolled with, and those that were found.
func (c *Context) macs() []string {
	macs := slices.Clone(c.Node.MACs)
	for _, found := range []*node.Hardware{c.Node.Hardware.InBand, c.Node.Hardware.OutOfBand} {
		if found == nil {
			continue
		}
		for _, mac := range ownMACs(found.NICs) {
			if !slices.Contains(macs, mac) {
				macs = append(macs, mac)
			}
		}
	}
	return macs
}

// ownMACs leaves out what no factory gave beside what one did: it is of the link to the board's controller, and the same one stands
// on many boards. A boot entry by it would take another machine's away. Virtual machines have no others.
func ownMACs(nics []node.NIC) (out []string) {
	for _, nic := range nics {
		if nic.MAC != "" {
			out = append(out, strings.ToLower(nic.MAC))
		}
	}
	if slices.ContainsFunc(out, func(mac string) bool { return !isLocal(mac) }) {
		out = slices.DeleteFunc(out, isLocal)
	}
	return out
}

// isLocal tells a MAC that is locally administered by the bit that says so.
func isLocal(mac string) bool { return len(mac) > 1 && strings.ContainsRune("2367abef", rune(mac[1])) }

// clearEntry sends nothing where no entry is left: every step of the workflow that could have set one says that it did not,
// or another boot.clear has been here since.
func clearEntry(ctx context.Context, c *Context, _ None) (any, error) {
	if c.noEntry() {
		return entryCleared{}, nil
	}
	if _, err := c.AwaitCommand(ctx, Order{
		Kind: agentcommand.BootEntryClear, Role: agentcommand.RoleSite,
		Payload: agentcommand.BootEntryGone{NodeID: c.Node.ID.String()},
	}); err != nil {
		return nil, err
	}
	out := entryCleared{Cleared: true, Ejected: c.filledDrive()}
	if !out.Ejected {
		return out, nil
	}
	// The ramdisk is in the machine's memory: it does not need the drive any more.
	_, _, err := c.drive(ctx, operation{concern: "virtual-media", verb: "eject", name: "eject"})
	return out, err
}

// filledDrive tells whether a step of the workflow has booted the machine from a virtual drive, or tried to, or has put what boot.entry
// made into one.
func (c *Context) filledDrive() (filled bool) {
	for _, s := range c.Workflow.Steps {
		switch {
		case !s.Started:
		case s.Action == actionEnsureRamdisk && setsEntry(s):
			with, err := decodeResult[Ramdisk](s.Action, s.With)
			filled = filled || err == nil && with.Device == deviceCD
		case s.Action == actionInsert:
			with, err := decodeResult[InsertMedia](s.Action, s.With)
			filled = filled || err == nil && with.FromStep == actionEntry
		case s.Action == actionEject && s.State == workflow.StepSucceeded:
			filled = false
		}
	}
	return filled
}

func (c *Context) noEntry() bool {
	known, left, setAt, clearedAt := false, false, time.Time{}, time.Time{}
	for _, s := range c.Workflow.Steps {
		switch {
		case !s.Started || s.ID == c.Step.ID:
		case s.Action == actionClear && s.State == workflow.StepSucceeded:
			clearedAt = s.SettledAt
		case s.Action == actionEntry || s.Action == actionEnsureRamdisk:
			known = true
			if setsEntry(s) {
				left, setAt = true, s.StartedAt
			}
		}
	}
	return known && (!left || clearedAt.After(setAt))
}

func setsEntry(s workflow.Step) bool {
	told, err := decodeResult[struct {
		BootEntry bool `json:"bootEntry"`
	}](s.Action, s.Result)
	return s.State != workflow.StepSucceeded || err != nil || told.BootEntry
}

// kexec boots the disk that was written.
func kexec(_ context.Context, c *Context, _ None) (any, error) {
	written, _, err := earlier[deployed](c, actionDeploy)
	return agentcommand.Kexec{Disk: written.Disk}, err
}
