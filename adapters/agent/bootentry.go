package agent

import (
	"context"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/domain/agentcommand"
)

// bootEntrySet fetches the machine's join token and says what it boots next, from the network or from a virtual drive.
func bootEntrySet(entries *netboot.Entries, medium func(nodeID string) string) Handler {
	return func(ctx context.Context, o Order) (any, func(context.Context) error, error) {
		ask, err := decode[agentcommand.BootEntry](o)
		if err != nil {
			return nil, nil, err
		}
		token, err := o.Secret(ctx, ask.TokenRef)
		if err != nil {
			return nil, nil, err
		}
		if err := entries.Set(netboot.Entry{
			NodeID: ask.NodeID, MACs: ask.MACs, Kernel: ask.Kernel, Initrd: ask.Initrd, Args: ask.Args,
			Token: string(token), ExpiresAt: ask.ExpiresAt,
		}); err != nil {
			return nil, nil, err
		}
		var out agentcommand.BootEntryKept
		if medium != nil {
			out.MediumURL = medium(ask.NodeID)
		}
		return out, nil, nil
	}
}

// bootEntryClear takes the machine's entry away. One that is not there is gone already.
func bootEntryClear(entries *netboot.Entries) Handler {
	return func(_ context.Context, o Order) (any, func(context.Context) error, error) {
		ask, err := decode[agentcommand.BootEntryGone](o)
		if err != nil {
			return nil, nil, err
		}
		return none{}, nil, entries.Clear(ask.NodeID)
	}
}
