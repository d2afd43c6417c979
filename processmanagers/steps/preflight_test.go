package steps_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/processmanagers/steps"
)

// step is one of a profile as it runs.
func step(name, action, with string, change ...func(*profile.Resolved)) profile.Resolved {
	r := profile.Resolved{ID: name, Action: action, Phase: profile.PhaseMain, With: json.RawMessage(with)}
	for _, c := range change {
		c(&r)
	}
	return r
}

func TestPreflight(t *testing.T) {
	w := newWorld(t)
	w.images["host@1"] = steps.Image{Name: "host@1"}
	check := func(doc profile.Document, resolved ...profile.Resolved) error {
		ports := steps.Ports{Images: w, Secrets: secrets{w}, Tokens: w, Config: w.config}
		return steps.Preflight{Catalog: shipped(t), Ports: ports, Clock: func() time.Time { return w.now }}.Check(t.Context(), w.node, doc, resolved)
	}
	cloudInit, talos := &profile.UserData{Kind: "cloud-init"}, &profile.UserData{Kind: "talos"}
	sometimes := func(r *profile.Resolved) { r.When = "node.site == 'x'" }
	cleaning := func(r *profile.Resolved) { r.Phase = profile.PhaseCleanup }
	for name, test := range map[string]struct {
		doc   profile.Document
		steps []profile.Resolved
		wrong []string
	}{
		"everything is there": {
			profile.Document{Image: "host@1", UserData: cloudInit},
			[]profile.Resolved{step("image", "image.resolve", ""), step("data", "userdata.render", ""), step("off", "power.setPower", `{"action":"off"}`)},
			nil,
		},
		"the step's own image": {profile.Document{Image: "gone@1"}, []profile.Resolved{step("image", "image.resolve", `{"image":"host@1"}`)}, nil},
		"no image":             {profile.Document{}, []profile.Resolved{step("image", "image.resolve", "")}, []string{"profile.steps.image"}},
		"an image that is gone, and no template": {
			profile.Document{Image: "gone@1", UserData: talos},
			[]profile.Resolved{step("image", "image.resolve", ""), step("data", "userdata.render", "")},
			[]string{"profile.steps.image", "profile.steps.data"},
		},
		"what may never run, or cleans up": {
			profile.Document{Image: "gone@1"},
			[]profile.Resolved{step("a", "image.resolve", "", sometimes), step("b", "image.resolve", "", cleaning)}, nil,
		},
		"a step that is in no catalog": {profile.Document{}, []profile.Resolved{step("op", "power.get", "")}, nil},
	} {
		err := check(test.doc, test.steps...)
		var f *fault.Error
		if len(test.wrong) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.As(err, &f) || f.Code != fault.InvalidInput || len(f.Issues) != len(test.wrong) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, path := range test.wrong {
			if f.Issues[i].Path != path || f.Issues[i].Message == "" {
				t.Errorf("%s: %+v", name, f.Issues[i])
			}
		}
	}
	if len(w.minted)+len(w.secrets) > 0 {
		t.Errorf("it minted %v and kept %d secrets", w.minted, len(w.secrets))
	}
}

// away finds no image because the catalog is out of reach.
type away struct{}

func (away) Resolve(context.Context, id.Tenant, string) (steps.Image, error) {
	return steps.Image{}, fault.New(fault.Unavailable, "the log is away")
}

// What could not be looked at is no reason to say that something is missing.
func TestPreflightThatCannotLook(t *testing.T) {
	look := steps.Preflight{Catalog: shipped(t), Ports: steps.Ports{Images: away{}}, Clock: time.Now}
	err := look.Check(t.Context(), newWorld(t).node, profile.Document{Image: "host@1"}, []profile.Resolved{step("image", "image.resolve", "")})
	wants(t, "away", err, fault.Unavailable, "")
}
