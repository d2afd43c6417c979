package jointoken

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// Decider is the aggregate.
var Decider = event.Decider[State, Command, Event]{Decide: Decide, Evolve: Evolve}

// The bounds of a token.
const (
	MaxUses = 100_000
	MaxLife = 366 * 24 * time.Hour
)

// Decide applies one verb. No events and no error: there was nothing to change. Errors: UNAUTHENTICATED for a token that is
// unknown, revoked, over or used up; FORBIDDEN for another role or another machine, the token being left unspent.
func Decide(s State, c Command) ([]Event, error) {
	switch c := c.(type) {
	case Mint:
		return mint(s, c)
	case Redeem:
		return redeem(s, c)
	case Revoke:
		switch {
		case !s.Exists():
			return nil, fault.New(fault.NotFound, "there is no such join token")
		case s.Revoked:
			return nil, nil
		}
		return []Event{Revoked(c)}, nil
	default:
		return nil, fmt.Errorf("jointoken.Decide does not know %T", c)
	}
}

func mint(s State, c Mint) ([]Event, error) {
	if s.Exists() {
		return nil, fault.New(fault.Conflict, "join token %s exists already", s.Token)
	}
	f := c.Facts
	var issues []fault.Issue
	need := func(ok bool, path, message string) {
		if !ok {
			issues = append(issues, fault.Issue{Path: path, Message: message})
		}
	}
	info, known := Info(f.Role)
	need(known, "body.role", "one of node, site, provisioned, discovery")
	need(f.Hash != "" && !id.IsZero(f.Token), "body", "a token")
	need(f.MaxUses >= 1 && f.MaxUses <= MaxUses, "body.maxUses", fmt.Sprintf("from 1 to %d", MaxUses))
	need(f.ExpiresAt.After(c.Now) && !f.ExpiresAt.After(c.Now.Add(MaxLife)), "body.expiresAt", "in the future, at most a year from now")
	need((f.Role == RoleNode) == !id.IsZero(f.Pool), "body.poolId", "with role node only, and then needed")
	need(!known || info.ToNode == !id.IsZero(f.Node), "body.nodeId", "with roles discovery and provisioned only, and then needed")
	need(f.Role == RoleNode || len(f.Labels) == 0, "body.labels", "with role node only")
	if len(issues) > 0 {
		return nil, fault.Invalid(issues...)
	}
	return []Event{f}, nil
}

func redeem(s State, c Redeem) ([]Event, error) {
	if err := s.Check(c.As, c.Claims, c.Use.KeyHash, c.Now); err != nil {
		return nil, err
	}
	before, again := s.UsedBy(c.Use.KeyHash)
	switch {
	case again && before != c.Use:
		return nil, fault.New(fault.Conflict, "the key joined as agent %s before", before.Agent)
	case again:
		return nil, nil
	}
	return []Event{Used{c.Use}}, nil
}

// Check tells whether an agent may join: what Redeem refuses, without spending anything.
func (s State) Check(as string, claims Claims, keyHash string, now time.Time) error {
	info, _ := Info(s.Role)
	_, again := s.UsedBy(keyHash)
	switch {
	case !s.Exists():
		return refused("it is not known")
	case s.Revoked:
		return refused("it was revoked")
	case now.After(s.ExpiresAt):
		return refused("it has expired")
	case info.JoinsAs != as:
		return fault.New(fault.Forbidden, "a join token of role %s joins agents of role %s, not %s", s.Role, info.JoinsAs, as)
	}
	if claim := s.Expect.Differs(claims); claim != "" {
		return fault.New(fault.Forbidden, "the join token is for another machine: %s differs", claim).WithDetail("claim", claim).
			WithRemedy("boot the machine that the token was made for, or make a token for this one")
	}
	if !again && len(s.Uses) >= s.MaxUses {
		return refused("it is used up")
	}
	return nil
}

func refused(why string) error {
	return fault.New(fault.Unauthenticated, "the join token does not work: %s", why).WithRemedy("ask for a fresh join token")
}

// Differs names the first claim that is not as expected; empty: none is.
func (e Expect) Differs(c Claims) string {
	switch {
	case len(e.MACs) > 0 && !slices.ContainsFunc(c.MACs, func(mac string) bool { return slices.ContainsFunc(e.MACs, fold(plainMAC, mac)) }):
		return "macs"
	case e.ProductUUID != "" && !sameUUID(e.ProductUUID, c.ProductUUID):
		return "productUuid"
	case e.Serial != "" && strings.TrimSpace(e.Serial) != strings.TrimSpace(c.Serial):
		return "serial"
	case e.GPUUUID != "" && !slices.ContainsFunc(c.GPUUUIDs, fold(strings.ToLower, e.GPUUUID)):
		return "gpuUuids"
	}
	return ""
}

// fold compares with a text after both were brought to one form.
func fold(form func(string) string, with string) func(string) bool {
	with = form(with)
	return func(text string) bool { return form(text) == with }
}

func plainMAC(mac string) string {
	return strings.ToLower(strings.NewReplacer(":", "", "-", "", ".", "").Replace(mac))
}

// sameUUID compares SMBIOS UUIDs. The first three fields are little-endian since SMBIOS 2.6, and firmware, controllers and
// kernels do not agree on it: a UUID is the same in either order.
func sameUUID(a, b string) bool {
	x, errX := hex.DecodeString(strings.ReplaceAll(a, "-", ""))
	y, errY := hex.DecodeString(strings.ReplaceAll(b, "-", ""))
	const size = 16
	if errX != nil || errY != nil || len(x) != size || len(y) != size {
		return a != "" && strings.EqualFold(a, b)
	}
	swapped := slices.Clone(y)
	slices.Reverse(swapped[0:4])
	slices.Reverse(swapped[4:6])
	slices.Reverse(swapped[6:8])
	return slices.Equal(x, y) || slices.Equal(x, swapped)
}

// Evolve folds one event.
func Evolve(s State, e Event) State {
	switch e := e.(type) { //nolint:gochecksumtype // State holds the first event, which makes it look like one
	case Minted:
		return State{Minted: e}
	case Used:
		s.Uses = append(slices.Clip(s.Uses), e.Use)
	case Revoked:
		s.Revoked, s.Why = true, e.Reason
	default:
		panic(fmt.Sprintf("jointoken.Evolve does not know %T", e))
	}
	return s
}
