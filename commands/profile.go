package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/tenant"
)

// ProfileOutcome is what a verb did to a version of a profile.
type ProfileOutcome = Outcome[profile.State]

// HardwareProfile binds concerns to drivers.
type HardwareProfile map[string]string

// library is what profiles are looked up and resolved with.
type library struct {
	catalog  profile.Catalog
	shipped  map[string]profile.Document // by id@version
	hardware map[string]HardwareProfile
}

// FoundProfile is a version of a profile, and whose it is.
type FoundProfile struct {
	Document profile.Document
	Tenant   id.Tenant // zero: shipped
}

// Shipped reports whether the profile came with the program: it is immutable and of no tenant.
func (f FoundProfile) Shipped() bool { return id.IsZero(f.Tenant) }

// UseProfiles gives the service the steps that profiles may use, the profiles that come with the program, and the hardware
// profiles. It is called before the service is used. INVALID_CONFIG lists everything that is wrong with them: two profiles of
// one id and version, a profile that is malformed or does not resolve, a binding of an unknown concern.
func (s *Service) UseProfiles(catalog profile.Catalog, shipped []profile.Document, hardware map[string]HardwareProfile) error {
	lib := library{catalog: catalog, shipped: map[string]profile.Document{}, hardware: hardware}
	var wrong issues
	for _, doc := range shipped {
		name := profile.Name(doc.ID, doc.Version)
		if _, twice := lib.shipped[name]; twice {
			wrong.add("profiles["+name+"]", "is given twice")
		}
		lib.shipped[name] = doc
		found := profile.Check(doc)
		if len(found) == 0 {
			_, found = profile.Resolve(doc, catalog, everyConcern(node.Drivers[0]))
		}
		for _, i := range found {
			wrong.add("profiles["+name+"]."+i.Path, "%s", i.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hardware)) {
		for _, concern := range slices.Sorted(maps.Keys(hardware[name])) {
			if !slices.Contains(profile.Concerns, concern) || hardware[name][concern] == "" {
				wrong.add("hardwareProfiles["+name+"]."+concern, "is no concern, or is bound to no driver")
			}
		}
	}
	if err := profile.Refuse(wrong...); err != nil {
		return err
	}
	s.profiles = lib
	return nil
}

// everyConcern binds each concern to one driver.
func everyConcern(driver string) HardwareProfile {
	bound := HardwareProfile{}
	for _, concern := range profile.Concerns {
		bound[concern] = driver
	}
	return bound
}

// CreateProfile stores a version of a profile for a tenant; one that no workflow has used yet is replaced, and the same again
// changes nothing. Decided on the tenant; for a public one, which every tenant finds, on the root tenant too. Errors:
// INVALID_CONFIG with every issue, CONFLICT for a version in use, and for a public id and version that another tenant has.
func (s *Service) CreateProfile(ctx context.Context, call Call, t id.Tenant, doc profile.Document) (ProfileOutcome, error) {
	if err := s.auth.Allow(call.Actor, principal.ProfilesWrite, tenantResource(t)); err != nil {
		return ProfileOutcome{}, err
	}
	if doc.Public && s.auth.Allow(call.Actor, principal.ProfilesWrite, tenantResource(tenant.Root)) != nil {
		return ProfileOutcome{}, fault.New(fault.Forbidden, "a profile that every tenant finds is the root tenant's to store").
			WithDetail("action", string(principal.ProfilesWrite)).WithRemedy("store it without public")
	}
	if err := s.existingTenant(ctx, t); err != nil {
		return ProfileOutcome{}, err
	}
	create := profile.Create{Tenant: t, Document: doc}
	if doc.Public {
		if err := s.publishProfile(ctx, call, create); err != nil {
			return ProfileOutcome{}, err
		}
	}
	done, err := s.onProfile(ctx, call, profile.StreamOf(t, doc.ID, doc.Version), t, doc.ID, create)
	if err != nil || doc.Public {
		return done, err
	}
	return done, s.onPublicProfile(ctx, call, profile.Withdraw{Tenant: t, Profile: doc.ID, Version: doc.Version})
}

// publishProfile takes the public name. A holder whose version is not there, or not public any more, has lost it.
func (s *Service) publishProfile(ctx context.Context, call Call, create profile.Create) error {
	doc := create.Document
	own, err := load(ctx, s, profile.Decider, profile.StreamOf(create.Tenant, doc.ID, doc.Version))
	if err != nil {
		return err
	}
	if _, err := profile.Decide(own.state, create); err != nil { // what is refused must not take a name
		return err
	}
	take := profile.Publish{Tenant: create.Tenant, Profile: doc.ID, Version: doc.Version}
	has, err := load(ctx, s, profile.Decider, profile.PublicStreamOf(doc.ID, doc.Version))
	if err != nil {
		return err
	}
	if holder := has.state.Publisher; !id.IsZero(holder) {
		held, err := load(ctx, s, profile.Decider, profile.StreamOf(holder, doc.ID, doc.Version))
		if err != nil {
			return err
		}
		if !held.state.Document.Public && s.clock().Sub(has.at) > ClaimGrace {
			take.Instead = holder
		}
	}
	return s.onPublicProfile(ctx, call, take)
}

// Profile finds what id@version means for a tenant: its own, else the public one, else the shipped one. Errors: NOT_FOUND.
func (s *Service) Profile(ctx context.Context, t id.Tenant, profileID string, version int) (FoundProfile, error) {
	own, err := load(ctx, s, profile.Decider, profile.StreamOf(t, profileID, version))
	if err != nil || own.state.Exists() {
		return FoundProfile{own.state.Document, own.state.Tenant}, err
	}
	public, err := load(ctx, s, profile.Decider, profile.PublicStreamOf(profileID, version))
	if err != nil {
		return FoundProfile{}, err
	}
	if holder := public.state.Publisher; !id.IsZero(holder) {
		held, err := load(ctx, s, profile.Decider, profile.StreamOf(holder, profileID, version))
		if err != nil || held.state.Document.Public {
			return FoundProfile{held.state.Document, held.state.Tenant}, err
		}
	}
	if doc, ok := s.profiles.shipped[profile.Name(profileID, version)]; ok {
		return FoundProfile{Document: doc}, nil
	}
	return FoundProfile{}, fault.New(fault.NotFound, "there is no profile %s", profile.Name(profileID, version)).
		WithRemedy("store it, or name one that is there")
}

// ShippedProfiles lists the profiles that came with the program, by id and version.
func (s *Service) ShippedProfiles() []profile.Document {
	docs := make([]profile.Document, 0, len(s.profiles.shipped))
	for _, name := range slices.Sorted(maps.Keys(s.profiles.shipped)) {
		docs = append(docs, s.profiles.shipped[name])
	}
	return docs
}

// MarkProfileUsed makes a stored version immutable and gives it as it will stay: it may have been replaced since it was found.
func (s *Service) MarkProfileUsed(ctx context.Context, call Call, found FoundProfile, w id.Workflow) (FoundProfile, error) {
	if found.Shipped() {
		return found, nil
	}
	doc := found.Document
	call.Actor, call.IfMatch, call.Command = Actor{System: true}, nil, freshCommand()
	done, err := s.onProfile(ctx, call, profile.StreamOf(found.Tenant, doc.ID, doc.Version), found.Tenant, doc.ID,
		profile.Use{Workflow: w})
	return FoundProfile{done.State.Document, found.Tenant}, err
}

// RenderProfile gives a profile's steps as a workflow would run them on a machine with a hardware profile; empty: one whose
// drivers are all the default one.
func (s *Service) RenderProfile(doc profile.Document, hardware string) ([]profile.Resolved, []fault.Issue) {
	if wrong := profile.Check(doc); len(wrong) > 0 {
		return nil, wrong
	}
	bound, err := s.bindings(hardware, node.Drivers[0])
	if err != nil {
		return nil, []fault.Issue{{Path: "hardwareProfile", Message: err.Error()}}
	}
	return s.resolve(doc, bound)
}

func (s *Service) resolve(doc profile.Document, bound HardwareProfile) ([]profile.Resolved, []fault.Issue) {
	if s.profiles.catalog == nil {
		return nil, []fault.Issue{{Path: "steps", Message: "this program knows no steps"}}
	}
	return profile.Resolve(doc, s.profiles.catalog, bound)
}

// bindings are those of a hardware profile over a driver for all concerns.
func (s *Service) bindings(hardware, driver string) (HardwareProfile, error) {
	bound := everyConcern(driver)
	if hardware == "" {
		return bound, nil
	}
	named, ok := s.profiles.hardware[hardware]
	if !ok {
		return nil, fmt.Errorf("there is no hardware profile named %q", cutKey(hardware))
	}
	maps.Copy(bound, named)
	return bound, nil
}

func (s *Service) onProfile(ctx context.Context, call Call, stream event.Stream, t id.Tenant, profileID string, c profile.Command,
) (ProfileOutcome, error) {
	return handle(ctx, s, call, request[profile.State, profile.Command, profile.Event]{
		decider:   profile.Decider,
		stream:    stream,
		authorize: func(profile.State) error { return nil }, // decided on the tenant
		decide:    func(profile.State, event.Version) (profile.Command, error) { return c, nil },
		meta: func(profile.State) event.Meta {
			return event.Meta{Tenant: t.String(), Subject: "profile/" + profileID}
		},
	})
}

// onPublicProfile applies a verb to a public name, under a command of its own: the name says by itself whether a repeat
// changes anything.
func (s *Service) onPublicProfile(ctx context.Context, call Call, c profile.Command) error {
	call.IfMatch, call.Command = nil, freshCommand()
	var of profile.Withdraw
	switch c := c.(type) {
	case profile.Publish:
		of = profile.Withdraw{Tenant: c.Tenant, Profile: c.Profile, Version: c.Version}
	case profile.Withdraw:
		of = c
	case profile.Create, profile.Use:
	}
	_, err := s.onProfile(ctx, call, profile.PublicStreamOf(of.Profile, of.Version), of.Tenant, of.Profile, c)
	return err
}
