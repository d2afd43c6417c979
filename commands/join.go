package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/agent"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/jointoken"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
)

// JoinFacts is what an agent presents to join.
type JoinFacts struct {
	Token     string
	Role      agent.Role
	Claims    agent.Claims
	Name      string // of the host
	Version   string
	PublicKey []byte // Ed25519; the request for a certificate was signed with it
	// Issue makes the certificate, once the token is known to be good.
	Issue func(a id.Agent, n id.Node, role agent.Role) (agent.Certificate, error)
}

// Join lets an agent in: the token is checked, then spent, then the agent is given a certificate. What differs from what the
// token expects is refused without spending it. The same token with the same key again, after a lost answer or a crash in
// between, is answered again, with another certificate. Errors: UNAUTHENTICATED for a token that does not work, FORBIDDEN for
// another machine or role, or where the node does not expect it.
func (s *Service) Join(ctx context.Context, call Call, in JoinFacts) (agent.State, error) {
	token, err := s.presented(ctx, in.Token)
	if err != nil {
		return agent.State{}, err
	}
	sum := sha256.Sum256(in.PublicKey)
	use := jointoken.Use{KeyHash: hex.EncodeToString(sum[:]), Node: token.Node}
	if err := token.Check(string(in.Role), jointoken.Claims(in.Claims), use.KeyHash, s.clock()); err != nil {
		return agent.State{}, err
	}
	switch token.Role {
	case jointoken.RoleSite:
		use.Agent = agent.OfSite(token.Token, use.KeyHash)
	case jointoken.RoleNode:
		use.Node = id.Of[id.Node](uuid.NewSHA1(uuid.UUID(token.Token.UUIDBytes()), []byte(use.KeyHash)))
		use.Agent = agent.Of(use.Node)
	case jointoken.RoleDiscovery, jointoken.RoleProvisioned:
		use.Agent = agent.Of(use.Node)
	}
	call.Actor.Agent = use.Agent // what follows is on its behalf
	keeps, err := s.enter(ctx, call, token, use, in)
	if err != nil {
		return agent.State{}, err
	}
	issued, err := in.Issue(use.Agent, use.Node, in.Role)
	if err != nil {
		return agent.State{}, err
	}
	done, err := s.onAgent(ctx, call, use.Agent, agent.Join{Facts: agent.Joined{
		Agent: use.Agent, Role: in.Role, Tenant: token.Tenant, Site: token.Site, Node: use.Node, JoinToken: token.Token,
		Claims: in.Claims, Name: in.Name, Version: in.Version, Certificate: issued,
		Keeps: keeps,
	}})
	return done.State, err
}

// enter spends the token, where the machine may come in; with role node it makes the node. Keeps: the machine is in rescue, and
// goes back to the OS that has a certificate already.
func (s *Service) enter(ctx context.Context, call Call, token jointoken.State, use jointoken.Use, in JoinFacts) (keeps bool, err error) {
	redeem := func() error {
		call := call
		call.IfMatch, call.Command = nil, freshCommand()
		_, err := s.onJoinToken(ctx, call, token.Token, jointoken.Redeem{
			Use: use, As: string(in.Role), Claims: jointoken.Claims(in.Claims), Now: s.clock(),
		})
		return err
	}
	switch token.Role {
	case jointoken.RoleSite:
		return false, redeem()
	case jointoken.RoleNode:
		return false, s.bringNode(ctx, call, token, use, in, redeem)
	case jointoken.RoleDiscovery, jointoken.RoleProvisioned:
	}
	to, err := load(ctx, s, node.Decider, node.StreamOf(use.Node))
	if err != nil {
		return false, err
	}
	if err := expected(to.state, token.Workflow, in.Role); err != nil {
		return false, err
	}
	return to.state.Provision == node.Rescue && in.Role == agent.RoleRamdisk, redeem()
}

// expected refuses an agent that the node does not wait for. A token that a workflow made is good while that workflow is the
// node's active one; another lets an installed OS in only where one may run.
func expected(to node.State, made id.Workflow, as agent.Role) error {
	switch {
	case !to.Exists() || to.Provision == node.Retired:
		return fault.New(fault.Forbidden, "the node is no longer there")
	case !id.IsZero(made) && (to.Workflow == nil || to.Workflow.ID != made):
		return fault.New(fault.Forbidden, "the workflow that the join token was made for is over").
			WithDetail("workflowId", made.String()).WithRemedy("ask for a fresh join token")
	case id.IsZero(made) && as == agent.RoleNode && !runsOS(to.Provision) && !failedWithOS(to):
		return turnedAway(to)
	}
	return nil
}

// bringNode makes a node of a machine that runs already: its MACs are claimed, the token spent, and the node joins its pool.
// Each part finds what an earlier try has done.
func (s *Service) bringNode(ctx context.Context, call Call, token jointoken.State, use jointoken.Use, in JoinFacts,
	redeem func() error,
) error {
	into, err := load(ctx, s, pool.Decider, pool.StreamOf(token.Pool))
	if err != nil {
		return err
	}
	joined, keys, err := checkJoin(in, use.Node, into.state, token)
	if err != nil {
		return err
	}
	now, err := load(ctx, s, node.Decider, node.StreamOf(use.Node))
	switch {
	case err != nil:
		return err
	case now.state.Exists(): // an earlier try came so far
		if err := expected(now.state, id.Workflow{}, in.Role); err != nil {
			return err
		}
		return redeem()
	}
	if err := s.takeClaims(ctx, call, token.Tenant, use.Node, keys); err != nil {
		return err
	}
	if err := redeem(); err != nil {
		if final(err) {
			s.giveBack(ctx, call, token.Tenant, use.Node, keys)
		}
		return err
	}
	call.IfMatch, call.Command = nil, uuid.UUID(use.Node.UUIDBytes()) // derived: a repeat finds the first try
	_, err = handle(ctx, s, call, request[node.State, node.Command, node.Event]{
		decider:   node.Decider,
		stream:    node.StreamOf(use.Node),
		authorize: func(node.State) error { return nil }, // by the token
		decide:    func(node.State, event.Version) (node.Command, error) { return node.Join{Facts: joined}, nil },
		meta:      nodeMeta,
	})
	return err
}

func checkJoin(in JoinFacts, n id.Node, into pool.State, token jointoken.State) (node.AgentJoined, []claim.Key, error) {
	if !into.Exists() {
		return node.AgentJoined{}, nil, fault.New(fault.Forbidden, "the pool of the join token is no longer there")
	}
	if in.Name == "" {
		in.Name = n.String()
	}
	var wrong issues
	wrong.name("name", in.Name)
	var macs []string
	var keys []claim.Key
	for i, text := range in.Claims.MACs {
		mac, err := claim.MAC(text)
		switch {
		case err != nil:
			wrong.add("claims.macs", "number %d: %s", i+1, err)
		case !slices.Contains(macs, mac):
			macs = append(macs, mac)
			keys = append(keys, claim.Key{Kind: claim.MACAddress, Value: mac})
		}
	}
	if len(macs) > maxMACs {
		wrong.add("claims.macs", "at most %d", maxMACs)
	}
	return node.AgentJoined{
		Node: n, Tenant: into.Tenant, Site: into.Site, Pool: into.ID, Name: in.Name, Labels: token.Labels, MACs: macs,
	}, keys, wrong.err()
}
