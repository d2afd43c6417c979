package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
)

// ClaimGrace is how long an enrollment may take between its claims and its node. A claim that is older, and whose node
// never appeared, is an orphan.
const ClaimGrace = 10 * time.Minute

// takeClaims claims every key for n, or none.
func (s *Service) takeClaims(ctx context.Context, call Call, tenant id.Tenant, n id.Node, keys []claim.Key) error {
	for i, key := range keys {
		err := s.takeClaim(ctx, call, claim.Take{Key: key, Tenant: tenant, Holder: n})
		if err == nil {
			continue
		}
		if i > 0 && final(err) {
			s.giveBack(ctx, call, tenant, n, keys[:i])
		}
		return err
	}
	return nil
}

// takeClaim takes an orphaned claim over.
func (s *Service) takeClaim(ctx context.Context, call Call, take claim.Take) error {
	_, err := s.onClaim(ctx, call, take.Key, take.Tenant, take)
	if fault.CodeOf(err) != fault.Conflict {
		return err
	}
	now, loadErr := load(ctx, s, claim.Decider, take.Key.Stream())
	if loadErr != nil {
		return loadErr
	}
	freed, freeErr := s.SweepClaim(ctx, take.Key)
	switch {
	case freeErr != nil:
		return freeErr
	case freed:
		_, err = s.onClaim(ctx, call, take.Key, take.Tenant, take)
		return err
	}
	return s.discreet(ctx, call, now.state.Holder, err)
}

// discreet takes the holder's name out of a conflict where the caller may not see that node, or it has not appeared yet:
// both read the same.
func (s *Service) discreet(ctx context.Context, call Call, holder id.Node, conflict error) error {
	held, err := load(ctx, s, node.Decider, node.StreamOf(holder))
	if err != nil {
		return err
	}
	stranger := !id.IsZero(call.Actor.Agent) // a machine that joins: its owner may be anybody
	if !stranger && held.state.Exists() && s.auth.Allow(call.Actor, principal.NodesRead, ResourceOf(held.state)) == nil {
		return conflict
	}
	var f *fault.Error
	if !errors.As(conflict, &f) {
		return conflict
	}
	return fault.New(fault.Conflict, "the %v address %v is taken", f.Details["kind"], f.Details["value"]).
		WithRemedy("use another address; one that an unfinished enrollment holds is free again within ten minutes")
}

// SweepClaim frees a claim whose node never appeared within ClaimGrace, was voided, or is retired, and reports whether it
// did. An enrollment that is merely slow can't appear afterwards: its node's stream is closed first. A retired node that still
// holds an address may have been left half retired: its credentials and certificates go first. An address that its node has
// left, or claimed and never moved to, is free as well.
func (s *Service) SweepClaim(ctx context.Context, key claim.Key) (bool, error) {
	held, err := load(ctx, s, claim.Decider, key.Stream())
	if err != nil || id.IsZero(held.state.Holder) {
		return false, err
	}
	holder, tenant := held.state.Holder, held.state.Tenant
	by, err := load(ctx, s, node.Decider, node.StreamOf(holder))
	if err != nil {
		return false, err
	}
	call, reason := Call{Actor: Actor{System: true}}, "the enrollment never finished"
	switch {
	case by.state.Provision == node.Retired:
		reason = "the node is retired"
		if err := s.dismiss(ctx, call, by.state); err != nil {
			return false, err
		}
	case by.state.Exists() && slices.Contains(keysOf(by.state), key):
		return false, nil
	case by.state.Exists():
		if s.clock().Sub(held.at) < ClaimGrace { // its change of address may be under way
			return false, nil
		}
		reason = "the node has another address"
	case by.state.Voided:
	case s.clock().Sub(held.at) < ClaimGrace:
		return false, nil
	default:
		if err := s.void(ctx, call, tenant, holder); err != nil {
			return false, err
		}
	}
	_, err = s.onClaim(ctx, call, key, tenant, claim.Release{Key: key, Holder: holder, Reason: reason})
	return err == nil, err
}

// void closes the stream of a node that never appeared. The node's own stream decides between this and the enrollment.
func (s *Service) void(ctx context.Context, call Call, tenant id.Tenant, n id.Node) error {
	call.IfMatch, call.Command = nil, freshCommand()
	_, err := handle(ctx, s, call, request[node.State, node.Command, node.Event]{
		decider:   node.Decider,
		stream:    node.StreamOf(n),
		authorize: func(node.State) error { return nil }, // decided on the pool, or the control plane's own doing
		decide: func(node.State, event.Version) (node.Command, error) {
			return node.VoidEnrollment{Facts: node.EnrollmentVoided{Node: n, Tenant: tenant}}, nil
		},
		meta: nodeMeta,
	})
	return err
}

func freshCommand() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// onClaim applies a verb to a claim, under a command of its own: claims say by themselves whether a repeat changes
// anything, and a repeat must see what became of the claim since.
func (s *Service) onClaim(ctx context.Context, call Call, key claim.Key, tenant id.Tenant, c claim.Command,
) (Outcome[claim.State], error) {
	call.IfMatch, call.Command = nil, freshCommand()
	return handle(ctx, s, call, request[claim.State, claim.Command, claim.Event]{
		decider:   claim.Decider,
		stream:    key.Stream(),
		authorize: func(claim.State) error { return nil }, // decided on the node or its pool
		decide:    func(claim.State, event.Version) (claim.Command, error) { return c, nil },
		meta: func(claim.State) event.Meta {
			return event.Meta{Tenant: tenant.String(), Subject: "claim/" + key.Stream().ID()}
		},
	})
}

// releaseClaims gives back what a node held.
func (s *Service) releaseClaims(ctx context.Context, call Call, state node.State, reason string) error {
	var failed []error
	for _, key := range keysOf(state) {
		release := claim.Release{Key: key, Holder: state.ID, Reason: reason}
		_, err := s.onClaim(ctx, call, key, state.Tenant, release)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func keysOf(state node.State) []claim.Key {
	var keys []claim.Key
	if state.BMC != nil {
		if address, err := claim.ParseAddress(state.BMC.Address); err == nil {
			keys = append(keys, claim.Key{Kind: claim.BMCAddress, Scope: state.Site.String(), Value: address.Key})
		}
	}
	for _, mac := range state.MACs {
		keys = append(keys, claim.Key{Kind: claim.MACAddress, Value: mac})
	}
	return keys
}

// giveBack frees what a refused enrollment took, after closing the node's stream: a repeat of the same request that is
// under way elsewhere must not appear without its claims. What fails here, SweepClaim frees later.
func (s *Service) giveBack(ctx context.Context, call Call, tenant id.Tenant, n id.Node, keys []claim.Key) {
	ctx = context.WithoutCancel(ctx)
	if err := s.void(ctx, call, tenant, n); err != nil {
		return
	}
	for _, key := range keys {
		release := claim.Release{Key: key, Holder: n, Reason: "the enrollment was refused"}
		if _, err := s.onClaim(ctx, call, key, tenant, release); err != nil {
			return
		}
	}
}
