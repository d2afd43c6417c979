package authz_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.jetify.com/typeid"

	"github.com/better-compute/metal/adapters/authz"
	"github.com/better-compute/metal/adapters/eventstore/memory"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/pool"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/site"
	"github.com/better-compute/metal/domain/tenant"
)

// heldSecrets is a secret store for a test that looks at no secret.
type heldSecrets struct{}

func (heldSecrets) Put(_ context.Context, secretID uuid.UUID, _ []byte) (node.SecretRef, error) {
	return node.SecretRef("secret:" + secretID.String()), nil
}
func (heldSecrets) Delete(context.Context, node.SecretRef) error { return nil }
func (heldSecrets) Mint(command uuid.UUID) string {
	sum := sha256.Sum256(command[:])
	return hex.EncodeToString(sum[:])
}

// ids names one thing of every kind.
type ids struct {
	tenant    id.Tenant
	site      id.Site
	pool      id.Pool
	node      id.Node
	principal id.Principal
}

func newID[T id.Kind, PT typeid.SubtypePtr[T]]() T { return id.Of[T, PT](uuid.Must(uuid.NewV7())) }

func callOf(actor commands.Actor) commands.Call {
	return commands.Call{Actor: actor, Command: uuid.Must(uuid.NewV7())}
}

// estate makes one thing of every kind, all in a tenant of their own.
func estate(t *testing.T, verbs *commands.Service) ids {
	t.Helper()
	ctx, system := t.Context(), func() commands.Call { return callOf(commands.Actor{System: true}) }
	must(verbs.Bootstrap(ctx))
	var have ids
	have.tenant = must(verbs.CreateTenant(ctx, system(), commands.NewTenant{Name: "theirs"})).State.ID
	have.site = must(verbs.CreateSite(ctx, system(), commands.NewSite{Tenant: have.tenant, Name: "theirs"})).State.ID
	have.pool = must(verbs.CreatePool(ctx, system(), commands.NewPool{
		Tenant: have.tenant, Site: have.site, Name: "theirs",
	})).State.ID
	have.node = must(verbs.Enroll(ctx, system(), commands.Enrollment{
		Pool: have.pool, BMC: commands.BMCAccess{Address: "10.0.0.1", Username: "u", Password: "p"},
	})).State.ID
	have.principal = must(verbs.CreatePrincipal(ctx, system(), commands.NewPrincipal{
		Tenant: have.tenant, Name: "theirs", Kind: principal.Service,
	})).State.ID
	return have
}

// attempts is every verb that names something by its id.
func attempts(ctx context.Context, verbs *commands.Service, actor commands.Actor, at ids) map[string]error {
	call := callOf(actor)
	errs := map[string]error{}
	try := func(verb string, err error) { errs[verb] = err }
	_, err := verbs.Enroll(ctx, call, commands.Enrollment{
		Pool: at.pool, BMC: commands.BMCAccess{Address: "10.0.0.2", Username: "u", Password: "p"},
	})
	try("enroll", err)
	_, err = verbs.Deploy(ctx, call, at.node, node.Profile{ID: "p", Version: 1})
	try("deploy", err)
	_, err = verbs.Power(ctx, call, at.node, node.ActionOn)
	try("power", err)
	_, err = verbs.Cordon(ctx, call, at.node, "")
	try("cordon", err)
	_, err = verbs.CreateSite(ctx, call, commands.NewSite{Tenant: at.tenant, Name: "n"})
	try("create site", err)
	_, err = verbs.CreatePool(ctx, call, commands.NewPool{Tenant: at.tenant, Site: at.site, Name: "n"})
	try("create pool", err)
	_, err = verbs.ChangeTenantPolicy(ctx, call, at.tenant, tenant.Policy{})
	try("tenant policy", err)
	_, err = verbs.ChangeSitePolicy(ctx, call, at.site, site.Policy{})
	try("site policy", err)
	_, err = verbs.ChangePoolPolicy(ctx, call, at.pool, pool.Policy{})
	try("pool policy", err)
	_, err = verbs.CreatePrincipal(ctx, call, commands.NewPrincipal{Tenant: at.tenant, Name: "n", Kind: principal.Person})
	try("create principal", err)
	_, err = verbs.SetPrincipalEnabled(ctx, call, at.principal, false)
	try("disable principal", err)
	_, _, _, err = verbs.IssueToken(ctx, call, at.principal, "", 0)
	try("issue token", err)
	for _, s := range []principal.Scope{
		{Kind: principal.ScopeTenant, ID: at.tenant.String()}, {Kind: principal.ScopeSite, ID: at.site.String()},
		{Kind: principal.ScopePool, ID: at.pool.String()}, {Kind: principal.ScopeNode, ID: at.node.String()},
	} {
		_, _, err = verbs.Bind(ctx, call, actor.Principal, []principal.Pattern{"*"}, s)
		try("bind at "+string(s.Kind), err)
	}
	return errs
}

// spoken is an error as its caller reads it, with the ids that it asked for left out.
func spoken(errs map[string]error, asked ids) map[string]string {
	names := strings.NewReplacer(
		asked.tenant.String(), "ID", asked.site.String(), "ID", asked.pool.String(), "ID", asked.node.String(), "ID",
		asked.principal.String(), "ID",
	)
	words := map[string]string{}
	for verb, err := range errs {
		var refused *fault.Error
		if !errors.As(err, &refused) {
			words[verb] = "nothing was refused"
			continue
		}
		words[verb] = names.Replace(refused.Error() + " | " + refused.Remedy)
	}
	return words
}

// Another tenant's things answer every verb, word for word, as things that were never there.
func TestWhatMayNotBeSeenDoesNotExist(t *testing.T) {
	verbs := commands.New(memory.New(must(commands.Registry())), must(authz.New()), heldSecrets{}, time.Now)
	theirs := estate(t, verbs)
	none := ids{newID[id.Tenant](), newID[id.Site](), newID[id.Pool](), newID[id.Node](), newID[id.Principal]()}
	mine := must(verbs.CreateTenant(t.Context(), callOf(commands.Actor{System: true}), commands.NewTenant{Name: "mine"}))
	actor := actorWith(bound(principal.Scope{Kind: principal.ScopeTenant, ID: mine.State.ID.String()}, "*"))

	of := func(at ids) map[string]string { return spoken(attempts(t.Context(), verbs, actor, at), at) }
	seen, absent := of(theirs), of(none)
	if diff := cmp.Diff(absent, seen); diff != "" {
		t.Errorf("a thing that is not there (-) and one of another tenant (+):\n%s", diff)
	}
	for verb, words := range seen {
		if !strings.HasPrefix(words, string(fault.NotFound)) {
			t.Errorf("%s: %s", verb, words)
		}
	}
}
