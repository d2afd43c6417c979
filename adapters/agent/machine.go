// Package agent is the agent's runtime: it joins, keeps a session with the gateway, carries out orders and signs what came
// of them. bcd site, ramdisk and node share it; so do simulated machines.
//
// The agent dials out only. What it does to the machine goes through Machine, to controllers through adapters/bmc.
package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/better-compute/metal/adapters/agentapi/protocol"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/node"
)

// Machine is the machine that a ramdisk or node agent runs on: a Linux box, or a simulated one.
type Machine interface {
	// BootID changes with every boot.
	BootID() string
	Claims(ctx context.Context) (protocol.Claims, error)
	// Hardware is the inventory from inside, with every local disk.
	Hardware(ctx context.Context) (node.Hardware, error)
	// Disks lists every local disk: the ones to wipe, and those that are only reported.
	Disks(ctx context.Context) ([]disk.Device, error)
	// Burn tries the processors or the memory.
	Burn(ctx context.Context, kind agentcommand.KindName, with agentcommand.Burnin, progress disk.Progress) (agentcommand.Burned, error)
	// Kexec starts the OS on a disk (as node.Disk.Key names it), or reboots into it. It returns once that is under way; the
	// process ends soon after.
	Kexec(ctx context.Context, diskKey string) error
	Reboot(ctx context.Context) error
	PowerOff(ctx context.Context) error
}

// Options is how an agent runs.
type Options struct {
	Gateway string            // https://host:port
	CA      string            // SHA-256 of the control plane's CA certificate, lower-case hex, as the boot entry or the config gives it
	Role    agentcommand.Role // as what it joins
	Token   string            // join token; needed where State has no certificate that is still valid
	State   State             // where key and certificate live between starts; a ramdisk's is in memory
	Machine Machine           // nil for a site agent
	BootID  string            // of a site agent: changes with every start of the process
	Version string
	Name    string
	Kinds   map[agentcommand.KindName]Handler
	Room    int         // how many orders at once: 1 for a machine, more for a site
	Boot    *BootServer // of a site agent: the network boot that it would serve; nil: none
	Backoff Backoff
	Now     func() time.Time
	Grace   time.Duration // how long orders may go on after Run's context has ended; default: 10 s
	Logger  *slog.Logger  // nil: nothing is logged
	// Heard is told each time that the gateway has answered the agent's session, with the gateway's time where it told it. It
	// may set the machine's clock.
	Heard func(serverTime time.Time)
}

// Backoff bounds the pauses between attempts to reach the gateway; each is jittered.
type Backoff struct {
	First, Most time.Duration // defaults: 500 ms, 30 s
}

// Order is what a handler carries out.
type Order struct {
	protocol.Order
	// Secret fetches a value that the payload refers to. It is not kept.
	Secret func(ctx context.Context, ref string) ([]byte, error)
	// Progress tells the control plane how far it is; it may be called often, little of it is sent.
	Progress disk.Progress
}

// Handler carries out one kind of agent command. The result is marshalled as JSON; an error that is a *fault.Error keeps its
// code and details; context.Canceled after a cancel settles nothing. After is run once the result has reached the gateway,
// for self-terminating kinds.
type Handler func(ctx context.Context, o Order) (result any, after func(context.Context) error, err error)

// State keeps an agent's key and certificate. Before an agent has joined for the first time it is given an Identity with
// nothing but Joining; Load may give that back with ok or without.
type State interface {
	Load() (Identity, bool, error)
	Save(Identity) error
}

// Identity is who an agent is.
type Identity struct {
	AgentID, NodeID, SiteID string
	Key                     []byte // PKCS #8, DER: Ed25519
	Certificate, CA         []byte // DER
	NotAfter, RenewAfter    time.Time
	// JoinedWith is the SHA-256 of the join token, hexadecimal. A token that may be used several times does not bring an agent
	// back whose certificate was taken away.
	JoinedWith string
	// Joining is the key of a join that is not answered yet, as Key is written. What the agent was before stays until it is.
	Joining []byte
}
