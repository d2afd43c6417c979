package commands

import (
	"context"

	"github.com/better-compute/metal/domain/bootlease"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// The verbs of this file are the gateway's and a process manager's: no HTTP route leads to them.

// BootLease is the boot lease of a site as the log has it. Errors: NOT_FOUND where no agent ever took it.
func (s *Service) BootLease(ctx context.Context, at id.Site) (bootlease.State, error) {
	now, err := load(ctx, s, bootlease.Decider, bootlease.StreamOf(at))
	if err == nil && !now.state.Exists() {
		err = fault.New(fault.NotFound, "no agent of site %s ever served network boot", at)
	}
	return now.state, err
}

// OnBootLease applies a verb to the boot lease of a site. Each says by itself whether a repeat changes anything.
func (s *Service) OnBootLease(ctx context.Context, call Call, at id.Site, c bootlease.Command) (bootlease.State, error) {
	call.IfMatch, call.Command = nil, freshCommand()
	done, err := handle(ctx, s, call, request[bootlease.State, bootlease.Command, bootlease.Event]{
		decider:   bootlease.Decider,
		stream:    bootlease.StreamOf(at),
		authorize: func(bootlease.State) error { return nil }, // the control plane's own
		decide:    func(bootlease.State, event.Version) (bootlease.Command, error) { return c, nil },
		meta: func(state bootlease.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "site/" + at.String()}
		},
	})
	return done.State, err
}
