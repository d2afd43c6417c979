package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/profiles"
)

func (a *API) profileOperations() {
	operate(a, document{
		id: "create-profile", method: http.MethodPost, path: "/v1/profiles", tag: "profiles", status: http.StatusCreated, late: true,
		summary: "Store a version of a profile", gives: oneOf[contract.ProfileDocument](),
		more: "A version that no workflow has used yet is replaced; one in use is CONFLICT. A malformed document is INVALID_CONFIG, " +
			"with every issue and its path within the document.",
	}, a.createProfile)
	operate(a, document{
		id: "list-profiles", method: http.MethodGet, path: "/v1/profiles", tag: "profiles",
		summary: "List profiles: the tenants' own and the public ones, newest first, then those that came with the program",
		gives:   pageOf[contract.ProfileDocument](),
	}, a.listProfiles)
	operate(a, document{
		id: "get-profile", method: http.MethodGet, path: "/v1/profiles/{id}", tag: "profiles",
		summary: "Read a profile as a tenant finds it: its own, else the public one, else the one that came with the program",
		gives:   oneOf[contract.ProfileDocument](),
	}, a.getProfile)
	operate(a, document{
		id: "validate-profile", method: http.MethodPost, path: "/v1/profiles/validate", tag: "profiles",
		summary: "List everything that is wrong with a profile; nothing is stored", gives: oneOf[contract.Verdict](),
	}, a.validateProfile)
	operate(a, document{
		id: "render-profile", method: http.MethodPost, path: "/v1/profiles/render", tag: "profiles",
		summary: "Give a profile's steps as a workflow would run them; nothing is stored", gives: oneOf[contract.Rendered](),
	}, a.renderProfile)
}

func (a *API) createProfile(ctx context.Context, in *creates[contract.NewProfile]) (*answer, error) {
	t, err := idAt[id.Tenant]("body.tenantId", in.Body.Tenant)
	if err != nil {
		return nil, err
	}
	doc, err := profile.Parse(in.Body.Profile)
	if err != nil {
		return nil, err
	}
	done, err := a.service.CreateProfile(ctx, creation(ctx), t, doc)
	if err != nil {
		return nil, err
	}
	out, err := a.profileDone(ctx, done)
	return located(out, "/v1/profiles/"+doc.ID+"?version="+strconv.Itoa(doc.Version)+"&tenant="+t.String(), err)
}

// profileDone is the answer to a verb: with what the read model knows of the creation, if it has caught up.
func (a *API) profileDone(ctx context.Context, done commands.ProfileOutcome) (*answer, error) {
	s := done.State
	out, err := documentOf(s.Document)
	if err != nil {
		return nil, err
	}
	created := done.At
	if done.Version > 1 {
		a.settled(ctx, profiles.Name, done.Position)
		if known, err := profiles.Find(ctx, a.db, s.Tenant, s.Document.ID, s.Document.Version); err == nil {
			created = known.CreatedAt
		}
	}
	out.Tenant, out.Used, out.Digest = s.Tenant.String(), s.Used, s.Digest
	out.CreatedAt, out.UpdatedAt = moment(created), moment(done.At)
	out.Version, out.Position = uint64(done.Version), uint64(done.Position)
	return a.done(ctx, profiles.Name, done.Version, done.Position, out)
}

// documentOf is what a document says by itself.
func documentOf(doc profile.Document) (contract.ProfileDocument, error) {
	text, err := json.Marshal(doc)
	return contract.ProfileDocument{
		ID: doc.ID, ProfileVersion: doc.Version, Public: doc.Public, Target: string(doc.Target), Description: doc.Description,
		Document: text,
	}, err
}

// shippedProfile is a profile that came with the program.
func shippedProfile(doc profile.Document) (contract.ProfileDocument, error) {
	out, err := documentOf(doc)
	if err != nil {
		return out, err
	}
	out.Tenant, out.Public, out.Used = contract.Builtin, true, true
	out.Digest, err = profile.Digest(doc)
	return out, err
}

func storedProfile(p profiles.Profile) contract.ProfileDocument {
	return contract.ProfileDocument{
		ID: p.ID, ProfileVersion: p.ProfileVersion, Tenant: p.Tenant, Public: p.Public(), Target: p.Target, Description: p.Description,
		Used: p.Used, Digest: p.Digest, Document: json.RawMessage(p.Document), CreatedAt: moment(p.CreatedAt),
		Version: uint64(p.Version), Position: uint64(p.Position), UpdatedAt: moment(p.UpdatedAt),
	}
}

type getProfile struct {
	ID string `path:"id" doc:"the profile's own id"`
	Fresh
	Version int    `query:"version" minimum:"1" doc:"left out: the newest"`
	Tenant  string `query:"tenant" doc:"as which tenant finds it; left out: the caller's own; builtin: as it came with the program"`
}

func (a *API) getProfile(ctx context.Context, in *getProfile) (*answer, error) {
	t := requestOf(ctx).who.Caller.Tenant
	if in.Tenant != "" && in.Tenant != contract.Builtin {
		var err error
		if t, err = idAt[id.Tenant]("query.tenant", in.Tenant); err != nil {
			return nil, err
		}
	}
	return singleIn(ctx, a, profiles.Name, in.Fresh, func(who *Identity) (contract.ProfileDocument, error) {
		scope := who.Scope(principal.ProfilesRead)
		switch {
		case scope.Empty():
			return contract.ProfileDocument{}, noProfile(in.ID, in.Version)
		case in.Tenant == contract.Builtin:
			return a.shipped(in.ID, in.Version)
		case in.Tenant != "":
			if err := a.visible(ctx, who, around{tenant: t}, principal.ProfilesRead); err != nil {
				return contract.ProfileDocument{}, err
			}
		}
		if !scope.Reaches(projections.Place{Tenant: t.String()}) {
			t = id.Tenant{} // what is public is all that the caller finds
		}
		return a.findProfile(ctx, t, in.ID, in.Version)
	}, func(p contract.ProfileDocument) contract.ProfileDocument { return p }, func(p contract.ProfileDocument) event.Version {
		return event.Version(p.Version)
	})
}

// findProfile is the stored version; without a number, the shipped one where that is newer.
func (a *API) findProfile(ctx context.Context, t id.Tenant, profileID string, version int) (contract.ProfileDocument, error) {
	shipped, none := a.shipped(profileID, version)
	row, err := profiles.Find(ctx, a.db, t, profileID, version)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		return shipped, none
	case err != nil || none != nil || shipped.ProfileVersion <= row.ProfileVersion:
		return storedProfile(row), err
	}
	return shipped, nil
}

// shipped finds a profile that came with the program. Errors: NOT_FOUND.
func (a *API) shipped(profileID string, version int) (contract.ProfileDocument, error) {
	var newest profile.Document
	for _, doc := range a.service.ShippedProfiles() {
		if doc.ID == profileID && (version == profiles.Newest && doc.Version > newest.Version || doc.Version == version) {
			newest = doc
		}
	}
	if newest.ID == "" {
		return contract.ProfileDocument{}, noProfile(profileID, version)
	}
	return shippedProfile(newest)
}

func noProfile(profileID string, version int) error {
	name := profileID
	if version != profiles.Newest {
		name = profile.Name(profileID, version)
	}
	return fault.New(fault.NotFound, "there is no profile %s", name)
}
