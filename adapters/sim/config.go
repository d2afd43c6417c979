package sim

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// Config is how a site is made.
type Config struct {
	Machines      []MachineSpec // these; or
	Count         int           // so many of the seed's
	Seed          uint64
	Listen        string // of the first controller; the next ones count up. Port 0 takes free ones. Default 127.0.0.1:0
	BootURL       string // the boot server that DHCP would name; it may be set later, see Site.SetBootURL
	Delays        Delays
	Personalities []bmcsim.Name // in turn; default every one
	DiskBytes     int64         // of each disk of a machine that is not spelled out; default 64 MiB
	DiskDir       string        // keeps disks in files there, from one run to the next; empty: in memory
	FetchKernel   bool          // a machine that boots from the network fetches kernel and ramdisk, and fails without
	Version       string        // that the agents tell

	Logger *slog.Logger // nil: none
	Clock  Clock        // nil: the wall clock
	HTTP   *http.Client // for network boots; nil: one of its own
	// Run is the agent; nil: agent.Run.
	Run func(ctx context.Context, o agent.Options) error
}

// Delays is how long machines take. Zero is at once.
type Delays struct {
	POST     time.Duration // of the firmware, before anything boots
	Boot     time.Duration // of kernel and userland, before the agent runs
	Shutdown time.Duration // in order
}

// Clock tells the time and waits.
type Clock interface {
	Now() time.Time
	Sleep(ctx context.Context, d time.Duration) error
}

// MachineSpec is one machine. What is left empty comes from the seed.
type MachineSpec struct {
	Name               string // default machine-1, machine-2, …
	Personality        bmcsim.Name
	Serial, UUID       string
	Username, Password string // of the controller
	Cores              int
	MemoryBytes        int64
	NICs               []node.NIC
	Disks              []DiskSpec
	BootOrder          []Device // without an override; default disk, network
	On                 bool     // power at the start
}

// DiskSpec is one disk of a machine.
type DiskSpec struct {
	Info  disk.Info
	Means disk.Means
}

// Device is something to boot from.
type Device string

// The devices.
const (
	FromDisk    Device = "disk"
	FromNetwork Device = "network"
)

type wallClock struct{}

func (wallClock) Now() time.Time                                   { return time.Now() }
func (wallClock) Sleep(ctx context.Context, d time.Duration) error { return bmcsim.Sleep(ctx, d) }

// complete fills what was left out, and tells what can't be.
func (c *Config) complete() error {
	if c.Count < 0 || c.Count > 0 && len(c.Machines) > 0 {
		return fault.New(fault.InvalidConfig, "a site has a number of machines or a list of them").
			WithRemedy("set one of Count and Machines")
	}
	for range c.Count {
		c.Machines = append(c.Machines, MachineSpec{})
	}
	if len(c.Personalities) == 0 {
		c.Personalities = bmcsim.Names()
	}
	for _, name := range c.Personalities {
		if err := bmcsim.Known(name); err != nil {
			return err
		}
	}
	c.defaults()
	return nil
}

func (c *Config) defaults() {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.DiskBytes == 0 {
		c.DiskBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	if c.Run == nil {
		c.Run = agent.Run
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: &http.Transport{ // a digest is of the file as served
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second, DisableCompression: true,
		}}
	}
}
