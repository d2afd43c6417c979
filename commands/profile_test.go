package commands_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/domain/profile/builtin"
	"github.com/better-compute/metal/domain/tenant"
	"github.com/better-compute/metal/processmanagers/steps"
)

// equip gives the write side the shipped steps and profiles.
func (w *world) equip(t *testing.T) *world {
	t.Helper()
	catalog, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := builtin.Profiles()
	if err != nil {
		t.Fatal(err)
	}
	hardware := map[string]commands.HardwareProfile{"odd": {"bios": "ipmi"}}
	w.equipped = func(s *commands.Service) {
		if err := s.UseProfiles(catalog, shipped, hardware); err != nil {
			t.Fatal(err)
		}
	}
	w.equipped(w.Service)
	return w
}

func draft(profileID, description string, public bool) profile.Document {
	return profile.Document{
		ID: profileID, Version: 1, Target: profile.TargetMetal, Description: description, Public: public,
		Steps: []profile.Step{{Use: "boot.clear"}},
	}
}

func TestAProfileIsFoundAtItsTenantThenPublicThenShipped(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	acme, other := w.newTenant(t), w.newTenant(t)
	describes := func(of id.Tenant, want string) {
		t.Helper()
		found, err := w.Profile(ctx, of, "metal-enroll", 1)
		if err != nil || !strings.HasPrefix(found.Document.Description, want) {
			t.Fatalf("got %+v, %v", found, err)
		}
	}
	describes(acme, "Verifies")
	store := func(call commands.Call, of id.Tenant, doc profile.Document) error {
		_, err := w.CreateProfile(ctx, call, of, doc)
		return err
	}
	if err := store(of(tenant.Root), tenant.Root, draft("metal-enroll", "public", true)); err != nil {
		t.Fatal(err)
	}
	describes(acme, "public")
	if err := store(of(acme), acme, draft("metal-enroll", "own", false)); err != nil {
		t.Fatal(err)
	}
	describes(acme, "own")
	describes(other, "public")
	// One that is not public any more is nobody else's, and its name is free.
	if err := store(of(tenant.Root), tenant.Root, draft("metal-enroll", "private", false)); err != nil {
		t.Fatal(err)
	}
	describes(other, "Verifies")
	both := of(tenant.Root)
	both.Actor.Bindings = append(both.Actor.Bindings, of(acme).Actor.Bindings...)
	if err := store(both, acme, draft("metal-enroll", "by acme", true)); err != nil {
		t.Fatal(err)
	}
	describes(other, "by acme")
	if _, err := w.Profile(ctx, acme, "nowhere", 1); fault.CodeOf(err) != fault.NotFound {
		t.Fatalf("got %v", err)
	}
}

func TestWhoMayStoreAProfile(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	acme, other := w.newTenant(t), w.newTenant(t)
	tests := map[string]struct {
		call commands.Call
		of   id.Tenant
		doc  profile.Document
		err  fault.Code
	}{
		"its own":                   {of(acme), acme, draft("x", "", false), ""},
		"another tenant's":          {of(other), acme, draft("x", "", false), fault.NotFound},
		"a public one":              {of(acme), acme, draft("x", "", true), fault.Forbidden},
		"of no tenant":              {system(), id.Of[id.Tenant](fresh()), draft("x", "", false), fault.NotFound},
		"malformed":                 {of(acme), acme, profile.Document{}, fault.InvalidConfig},
		"public by the root tenant": {of(tenant.Root), tenant.Root, draft("y", "", true), ""},
		"another public one":        {system(), acme, draft("y", "", true), fault.Conflict},
	}
	for _, name := range []string{
		"its own", "another tenant's", "a public one", "of no tenant", "malformed", "public by the root tenant", "another public one",
	} {
		tt := tests[name]
		if _, err := w.CreateProfile(ctx, tt.call, tt.of, tt.doc); fault.CodeOf(err) != tt.err {
			t.Errorf("%s: got %v, want %q", name, err, tt.err)
		}
	}
}

func TestTheSameRequestStoresAProfileOnce(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	call := of(tenant.Root)
	first, err := w.CreateProfile(ctx, call, tenant.Root, draft("x", "a", true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateProfile(ctx, of(tenant.Root), tenant.Root, draft("x", "b", true)); err != nil {
		t.Fatal(err)
	}
	again, err := w.CreateProfile(ctx, call, tenant.Root, draft("x", "a", true))
	if err != nil || again.Version != first.Version || again.State.Digest != first.State.Digest {
		t.Fatalf("got %+v, %v; at first %+v", again, err, first)
	}
}

func TestAPublicNameWhoseProfileNeverAppearedIsTakenOver(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t).equip(t)
	acme := w.newTenant(t)
	stream := profile.PublicStreamOf("x", 1)
	meta := metaOf(acme)
	if _, err := w.log.Append(ctx, stream, 0, meta, profile.Published{Tenant: acme, Profile: "x", Version: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateProfile(ctx, system(), tenant.Root, draft("x", "", true)); fault.CodeOf(err) != fault.Conflict {
		t.Fatalf("while it may still appear: %v", err)
	}
	w.clock.advance(commands.ClaimGrace + time.Second)
	if _, err := w.CreateProfile(ctx, system(), tenant.Root, draft("x", "", true)); err != nil {
		t.Fatal(err)
	}
	if found, err := w.Profile(ctx, acme, "x", 1); err != nil || found.Tenant != tenant.Root {
		t.Fatalf("got %+v, %v", found, err)
	}
}

func TestUseProfilesRefuses(t *testing.T) {
	catalog, err := steps.NewCatalog(agentcommand.Kinds, steps.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	good, stray := draft("x", "", false), draft("y", "", false)
	stray.Steps = append(stray.Steps, profile.Step{Use: "acme.fan"})
	err = newWorld(t).UseProfiles(catalog, []profile.Document{good, good, stray, {}},
		map[string]commands.HardwareProfile{"odd": {"coffee": "redfish"}})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.InvalidConfig {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"profiles[x@1]", "profiles[y@1].steps[1].use", "profiles[@0].id", "hardwareProfiles[odd].coffee"} {
		if !strings.Contains(err.Error(), want+": ") {
			t.Errorf("nothing is said of %s: %v", want, err)
		}
	}
}

func TestValidateAndRender(t *testing.T) {
	w := newWorld(t).equip(t)
	doc := draft("x", "", false)
	doc.Steps = append(doc.Steps, profile.Step{Use: "bios.set", On: profile.OnSite})
	rendered, wrong := w.RenderProfile(doc, "odd")
	if len(wrong) > 0 || len(rendered) != 2 || rendered[1].Driver != "ipmi" {
		t.Fatalf("got %+v, %v", rendered, wrong)
	}
	if _, wrong := w.RenderProfile(doc, "even"); len(wrong) != 1 || wrong[0].Path != "hardwareProfile" {
		t.Fatalf("got %v", wrong)
	}
}

// What is malformed hides nothing else, and what only follows from it is not told.
func TestEveryIssueOfAProfile(t *testing.T) {
	w := newWorld(t).equip(t)
	const head = `{"id":"x","version":1,"target":"metal"`
	for name, c := range map[string]struct {
		text, hardware string
		want           []string
	}{
		"none":               {head + `,"steps":[{"use":"boot.clear"}]}`, "", nil},
		"unresolved":         {head + `,"steps":[{"use":"no.such"},{"use":"power.setPower"}]}`, "", []string{"steps[0].use", "steps[1].with.action"}},
		"both":               {head + `,"color":1,"steps":[{"use":"no.such","timeout":"soon"}]}`, "", []string{"color", "steps[0].timeout", "steps[0].use"}},
		"where is malformed": {head + `,"steps":[{"use":"bios.set","on":"moon"}]}`, "", []string{"steps[0].on"}},
		"input is malformed": {head + `,"steps":[{"use":"power.setPower","with":[]}]}`, "", []string{"steps[0].with"}},
		"hardware":           {head + `,"color":1,"steps":[{"use":"boot.clear"}]}`, "even", []string{"color", "hardwareProfile"}},
		"tenth beside first": {head + `,"steps":[{"use":1}` + strings.Repeat(`,{"use":"no.such"}`, 10) + `]}`, "", []string{
			"steps[0].use", "steps[10].use", "steps[1].use", "steps[2].use", "steps[3].use", "steps[4].use", "steps[5].use", "steps[6].use",
			"steps[7].use", "steps[8].use", "steps[9].use",
		}},
		"no object": {`[]`, "", []string{"", "id", "target", "version"}},
		"no JSON":   {`{`, "", []string{""}},
	} {
		var got []string
		for _, i := range w.ProfileIssues([]byte(c.text), c.hardware) {
			got = append(got, i.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: issues at %q, want %q", name, got, c.want)
		}
	}
}
