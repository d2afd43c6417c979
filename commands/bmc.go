package commands

import (
	"cmp"
	"context"
	"slices"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
)

// BMCChange is how a machine's management controller is reached from now on; what is left out stays.
type BMCChange struct {
	Address     string
	Credentials *Credentials
	TLS         *node.TLSPolicy
}

// ChangeBMC takes a new password, another address or another trust for the node's controller. An address must be free within
// the site, else CONFLICT, and changes only while nothing is under way on the node. The credentials of before are forgotten.
// A second time with the same call changes nothing.
func (s *Service) ChangeBMC(ctx context.Context, call Call, n id.Node, in BMCChange) (NodeOutcome, error) {
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err == nil {
		err = s.mayActOn(call, n, principal.NodesProvision, now.state)
	}
	if err != nil {
		return NodeOutcome{}, err
	}
	if now.state.BMC == nil || now.applied(node.StreamOf(n), call.Command) > 0 {
		return s.changeBMC(ctx, call, n, node.BMC{})
	}
	to, err := s.checkBMCChange(ctx, in, now.state.Site)
	if err != nil {
		return NodeOutcome{}, err
	}
	keys := keysOf(node.State{Site: now.state.Site, BMC: &to})
	if err := s.takeClaims(ctx, call, now.state.Tenant, n, keys); err != nil {
		return NodeOutcome{}, err
	}
	if in.Credentials != nil {
		if to.Credentials, err = s.storeCredentials(ctx, call, *in.Credentials); err != nil {
			return NodeOutcome{}, err
		}
	}
	done, err := s.changeBMC(ctx, call, n, to)
	if err != nil {
		return NodeOutcome{}, s.undoBMCChange(ctx, n, to.Credentials, err)
	}
	return done, s.leaveBMC(ctx, call, n, now.state, keys)
}

// changeBMC decides on what the node has by then: of two changes of different things at once, both count.
func (s *Service) changeBMC(ctx context.Context, call Call, n id.Node, to node.BMC) (NodeOutcome, error) {
	return s.onNode(ctx, call, n, principal.NodesProvision, func(now node.State, _ event.Version) (node.Command, error) {
		if now.BMC == nil {
			return node.ChangeBMC{}, nil // refused
		}
		changed := *now.BMC
		changed.Address = cmp.Or(to.Address, changed.Address)
		changed.Credentials = cmp.Or(to.Credentials, changed.Credentials)
		changed.TLS = cmp.Or(to.TLS, changed.TLS)
		return node.ChangeBMC{BMC: changed}, nil
	})
}

// checkBMCChange normalises what is changed, and leaves the rest empty.
func (s *Service) checkBMCChange(ctx context.Context, in BMCChange, of id.Site) (to node.BMC, err error) {
	at, err := load(ctx, s, site.Decider, site.StreamOf(of))
	if err != nil {
		return node.BMC{}, err
	}
	var wrong issues
	if in == (BMCChange{}) {
		wrong.add("body", "an address, credentials or tls")
	}
	if in.Address != "" {
		to.Address, _ = wrong.address("body.address", in.Address, at.state)
	}
	if in.Credentials != nil {
		wrong.credentials("body.credentials", *in.Credentials)
	}
	if in.TLS != nil {
		to.TLS = wrong.tls("body.tls", *in.TLS)
	}
	return to, wrong.err()
}

// undoBMCChange forgets credentials that came to nothing. An address that was claimed for nothing is free again after
// ClaimGrace: another change of the same node may want it right now.
func (s *Service) undoBMCChange(ctx context.Context, n id.Node, stored node.SecretRef, failed error) error {
	if stored == "" || !final(failed) {
		return failed // nothing is left, or it may have happened
	}
	ctx = context.WithoutCancel(ctx)
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err == nil && now.state.BMC != nil && now.state.BMC.Credentials != stored {
		_ = s.secrets.Delete(ctx, stored) // what is left is sealed, and nothing refers to it
	}
	return failed
}

// leaveBMC forgets the credentials and gives back the address that the node had before, where it has others now.
func (s *Service) leaveBMC(ctx context.Context, call Call, n id.Node, before node.State, taken []claim.Key) error {
	now, err := load(ctx, s, node.Decider, node.StreamOf(n))
	if err != nil {
		return err
	}
	has := keysOf(now.state)
	for _, key := range keysOf(before) {
		if slices.Contains(has, key) {
			continue
		}
		release := claim.Release{Key: key, Holder: n, Reason: "the node has another address"}
		if _, err := s.onClaim(ctx, call, key, before.Tenant, release); err != nil {
			return err
		}
	}
	if old := before.BMC.Credentials; now.state.BMC.Credentials != old {
		if err := s.secrets.Delete(ctx, old); err != nil {
			return err
		}
	}
	// Two changes at once may have given this one's address back: whoever has it must hold it.
	return s.takeClaims(ctx, call, before.Tenant, n, intersect(taken, has))
}

func intersect(a, b []claim.Key) []claim.Key {
	return slices.DeleteFunc(slices.Clone(a), func(k claim.Key) bool { return !slices.Contains(b, k) })
}
