package plane

import (
	"context"
	"fmt"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/processmanagers"
	"github.com/better-compute/metal/processmanagers/bootlease"
	"github.com/better-compute/metal/processmanagers/provision"
	"github.com/better-compute/metal/processmanagers/steps"
	"github.com/better-compute/metal/processmanagers/workflow"
)

// kinds are the agent commands of the product and of the program that embeds it.
func (x Extensions) kinds() ([]agentcommand.Kind, error) {
	return agentcommand.Join(agentcommand.Kinds, x.Kinds)
}

// learn gives the write side its steps and profiles.
func (p *plane) learn(c Config, kinds []agentcommand.Kind) (*steps.Catalog, error) {
	catalog, err := steps.NewCatalog(kinds, steps.Shipped(), c.Extensions.Steps)
	if err != nil {
		return nil, err
	}
	shipped, err := builtin.Profiles()
	if err != nil {
		return nil, err
	}
	if c.Extensions.Attestor != nil {
		p.service.VerifyWith(c.Extensions.Attestor)
	}
	return catalog, p.service.UseProfiles(catalog, append(shipped, c.Extensions.Profiles...), c.HardwareProfiles)
}

// manage makes the process managers, and the workers that run them.
func (p *plane) manage(c Config, catalog *steps.Catalog, gateway string, seen func(string, time.Duration, error)) error {
	ports := steps.Ports{
		Tokens:  stepTokens{service: p.service, clock: p.clock.Now},
		Secrets: stepSecrets{p.secrets}, Images: stepImages{p.service},
		Agents: stepAgents{service: p.service, db: p.stores.Pool, presence: p.presence, clock: p.clock.Now},
		Nodes:  workflow.Nodes{Service: p.service},
		Config: steps.Config{
			GatewayURL: gateway, CASHA256: p.ca.Fingerprint(), Kernel: c.Kernel, Initrd: c.Initrd, KernelArgs: c.KernelArgs,
			Templates: c.Extensions.Templates,
		},
	}
	p.service.LookBefore(steps.Preflight{Catalog: catalog, Ports: ports, Clock: p.clock.Now})
	engine := workflow.New(p.service, catalog, ports, p.clock.Now, p.logger)
	nodes := provision.New(p.service, catalog, ports, p.clock.Now, p.logger)
	takeovers := bootlease.New(p.service, sites{p}, p.clock.Now, p.logger)
	managers := []processmanagers.Manager{nodes.Manager(), engine.Manager(), takeovers.Manager()}
	p.wakeups = postgres.NewWakeups(p.stores.Pool, p.stores.Log, managers...)
	nodes.WakeEngine(func(ctx context.Context, key string) error { return p.wakeups.Wake(ctx, workflow.Name, key) })
	workers, err := processmanagers.NewWorkers(p.wakeups, processmanagers.Options{Logger: p.logger, Observe: seen}, managers...)
	p.workers = workers
	return err
}

// RebuildWakeups derives the table of keys that process managers must look at from the log: every machine in a state that
// moves by itself, every workflow that is not over. A control plane may run meanwhile.
func RebuildWakeups(ctx context.Context, s *Stores) (due int, err error) {
	table := postgres.NewWakeups(s.Pool, s.Log,
		processmanagers.Manager{Name: provision.Name, Wakes: provision.Wakes, Rests: provision.Rests},
		processmanagers.Manager{Name: workflow.Name, Wakes: workflow.Wakes, Rests: workflow.Rests},
		processmanagers.Manager{Name: bootlease.Name, Wakes: bootlease.Wakes, Rests: bootlease.Rests})
	if err := table.Rebuild(ctx); err != nil {
		return 0, fmt.Errorf("wake-ups: %w", err)
	}
	due, _, err = table.Depth(ctx)
	return due, err
}
