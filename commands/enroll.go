package commands

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
)

// Enrollment is a machine as its operator hands it over.
type Enrollment struct {
	Pool            id.Pool
	Name            string // empty: the node's id
	Labels          map[string]string
	BMC             BMCAccess
	MACs            []string // in any form; those that may boot from the network
	HardwareProfile string   // over the pool's
}

// BMCAccess is how to reach a machine's management controller.
type BMCAccess struct {
	Driver   string // empty is redfish
	Address  string // in any form; see claim.ParseAddress
	Username string
	Password string
	TLS      node.TLSPolicy // an empty mode is pin-on-first-use
}

// Credentials are what a management controller lets one in with.
type Credentials struct{ Username, Password string }

const maxMACs = 64

// Enroll hands over a machine with a BMC. The BMC's address must be free within the site, each MAC everywhere, else
// CONFLICT; the holder is named where the caller may see it. The credentials go to the sealed store; the node's stream
// holds a reference. What an enrollment that fails has taken is given back; what a crash leaves, SweepClaims gives back.
func (s *Service) Enroll(ctx context.Context, call Call, in Enrollment) (NodeOutcome, error) {
	into, at, err := s.enrollTarget(ctx, call, in.Pool)
	if err != nil {
		return NodeOutcome{}, err
	}
	n := id.Of[id.Node](call.Command)
	enrolled, keys, err := checkEnrollment(in, n, into, at)
	if err != nil {
		return NodeOutcome{}, err
	}
	if err := s.takeClaims(ctx, call, into.Tenant, n, keys); err != nil {
		return NodeOutcome{}, err
	}
	ref, err := s.storeCredentials(ctx, call, Credentials{in.BMC.Username, in.BMC.Password})
	if err != nil { // nothing of the node can have happened yet
		s.giveBack(ctx, call, into.Tenant, n, keys)
		return NodeOutcome{}, err
	}
	enrolled.BMC.Credentials = ref
	return s.enroll(ctx, call, enrolled)
}

func (s *Service) enrollTarget(ctx context.Context, call Call, p id.Pool) (pool.State, site.State, error) {
	into, err := load(ctx, s, pool.Decider, pool.StreamOf(p))
	if err != nil {
		return pool.State{}, site.State{}, err
	}
	if !into.state.Exists() {
		return pool.State{}, site.State{}, fault.New(fault.NotFound, "there is no pool %s", p)
	}
	if err := s.auth.Allow(call.Actor, principal.NodesProvision, poolResource(into.state)); err != nil {
		return pool.State{}, site.State{}, err
	}
	at, err := load(ctx, s, site.Decider, site.StreamOf(into.state.Site))
	return into.state, at.state, err
}

func (s *Service) storeCredentials(ctx context.Context, call Call, in Credentials) (node.SecretRef, error) {
	value, err := json.Marshal(map[string]string{"username": in.Username, "password": in.Password})
	if err != nil {
		return "", fmt.Errorf("encode BMC credentials: %w", err)
	}
	return s.secrets.Put(ctx, credentialsID(call.Command), value)
}

func (s *Service) enroll(ctx context.Context, call Call, e node.Enrolled) (NodeOutcome, error) {
	return handle(ctx, s, call, request[node.State, node.Command, node.Event]{
		decider:   node.Decider,
		stream:    node.StreamOf(e.Node),
		authorize: func(node.State) error { return nil }, // decided on the pool
		decide:    func(node.State, event.Version) (node.Command, error) { return node.Enroll{Facts: e}, nil },
		meta:      nodeMeta,
	})
}

// credentialsID is derived from the command, so that a retry replaces the value instead of leaving a second one.
func credentialsID(command uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(command, []byte("bmc-credentials"))
}

// final tells an error after which nothing of the verb can have happened.
func final(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.Internal, fault.Timeout:
		return false
	}
	return true
}

// checkEnrollment normalises the input and lists everything that is wrong with it.
func checkEnrollment(in Enrollment, n id.Node, into pool.State, at site.State) (node.Enrolled, []claim.Key, error) {
	var wrong issues
	if in.Name == "" {
		in.Name = n.String()
	}
	wrong.name("body.name", in.Name)
	wrong.labels("body.labels", in.Labels)
	if len(in.HardwareProfile) > maxName {
		wrong.add("body.hardwareProfile", "at most %d characters", maxName)
	}
	bmc, key := wrong.bmc(in.BMC, at)
	macs := wrong.macs(in.MACs)
	if err := wrong.err(); err != nil {
		return node.Enrolled{}, nil, err
	}
	keys := []claim.Key{key}
	for _, m := range macs {
		keys = append(keys, claim.Key{Kind: claim.MACAddress, Value: m})
	}
	return node.Enrolled{
		Node: n, Tenant: into.Tenant, Site: into.Site, Pool: into.ID, Name: in.Name, Labels: in.Labels,
		BMC: bmc, MACs: macs, HardwareProfile: in.HardwareProfile,
	}, keys, nil
}

func (i *issues) bmc(in BMCAccess, at site.State) (node.BMC, claim.Key) {
	if in.Driver == "" {
		in.Driver = node.Drivers[0]
	}
	if !slices.Contains(node.Drivers, in.Driver) {
		i.add("body.bmc.driver", "one of %s", strings.Join(node.Drivers, ", "))
	}
	url, key := i.address("body.bmc.address", in.Address, at)
	i.credentials("body.bmc.credentials", Credentials{in.Username, in.Password})
	return node.BMC{Driver: in.Driver, Address: url, TLS: i.tls("body.bmc.tls", in.TLS)}, key
}

// address normalises the address of a controller at a site.
func (i *issues) address(path, text string, at site.State) (string, claim.Key) {
	address, err := claim.ParseAddress(text)
	if err != nil {
		i.add(path, "%s", err)
	} else if host, _ := hostOf(address); !at.Policy.Allows(host) {
		i.add(path, "not in a BMC network of site %s", at.ID)
	}
	return address.URL, claim.Key{Kind: claim.BMCAddress, Scope: at.ID.String(), Value: address.Key}
}

func (i *issues) credentials(path string, in Credentials) {
	i.credential(path+".username", in.Username)
	i.credential(path+".password", in.Password)
}

func hostOf(a claim.Address) (string, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		return "", err
	}
	host := u.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String(), nil
	}
	return host, nil
}

// credential takes any text: BMCs hold passwords of digits only, with spaces, quotes and every script.
func (i *issues) credential(path, value string) {
	const most = 256
	switch {
	case value == "":
		i.add(path, "needed")
	case len(value) > most:
		i.add(path, "at most %d bytes", most)
	case strings.ContainsRune(value, 0):
		i.add(path, "no NUL character")
	}
}

func (i *issues) tls(path string, in node.TLSPolicy) node.TLSPolicy {
	if in.Mode == "" {
		in.Mode = node.TLSPinOnFirstUse
	}
	if !slices.Contains(node.TLSModes, in.Mode) {
		i.add(path+".mode", "one of pin-on-first-use, pinned, system-ca, ca, insecure")
	}
	in.Fingerprint = strings.ToLower(strings.ReplaceAll(in.Fingerprint, ":", ""))
	raw, err := hex.DecodeString(in.Fingerprint)
	if given := in.Fingerprint != ""; given != (in.Mode == node.TLSPinned) || given && (err != nil || len(raw) != 32) {
		i.add(path+".fingerprint", "the SHA-256 of the certificate, 64 hexadecimal digits, with mode pinned only")
	}
	if given := in.CA != ""; given != (in.Mode == node.TLSCustomCA) || given && !certificate(in.CA) {
		i.add(path+".ca", "a PEM certificate, with mode ca only")
	}
	return in
}

func certificate(text string) bool {
	block, _ := pem.Decode([]byte(text))
	if block == nil || len(text) > 64<<10 {
		return false
	}
	_, err := x509.ParseCertificate(block.Bytes)
	return err == nil
}

func (i *issues) macs(in []string) []string {
	if len(in) > maxMACs {
		i.add("body.macs", "at most %d", maxMACs)
		return nil
	}
	first := map[string]int{}
	macs := make([]string, 0, len(in))
	for at, text := range in {
		path := fmt.Sprintf("body.macs[%d]", at)
		mac, err := claim.MAC(text)
		if err != nil {
			i.add(path, "%s", err)
			continue
		}
		if before, doubled := first[mac]; doubled {
			i.add(path, "the same address as body.macs[%d]", before)
			continue
		}
		first[mac] = at
		macs = append(macs, mac)
	}
	return macs
}
