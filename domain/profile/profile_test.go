package profile_test

import (
	"strconv"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/profile"
)

func numbered(n int) uuid.UUID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(n))) }

func tenant(n int) id.Tenant { return id.Of[id.Tenant](numbered(n)) }

func draft(description string) profile.Create {
	return profile.Create{Tenant: tenant(1), Document: profile.Document{
		ID: "x", Version: 1, Target: profile.TargetMetal, Description: description,
	}}
}

func TestAVersionInUseNeverChanges(t *testing.T) {
	publish := profile.Publish{Tenant: tenant(1), Profile: "x", Version: 1}
	other := profile.Publish{Tenant: tenant(2), Profile: "x", Version: 1}
	instead := other
	instead.Instead = tenant(1)
	tests := map[string]struct {
		given  []profile.Command
		when   profile.Command
		events int
		err    fault.Code
	}{
		"first":                        {nil, draft("a"), 1, ""},
		"the same again":               {[]profile.Command{draft("a")}, draft("a"), 0, ""},
		"another before it is used":    {[]profile.Command{draft("a")}, draft("b"), 1, ""},
		"used":                         {[]profile.Command{draft("a")}, profile.Use{}, 1, ""},
		"used again":                   {[]profile.Command{draft("a"), profile.Use{}}, profile.Use{}, 0, ""},
		"the same after it is used":    {[]profile.Command{draft("a"), profile.Use{}}, draft("a"), 0, ""},
		"another after it is used":     {[]profile.Command{draft("a"), profile.Use{}}, draft("b"), 0, fault.Conflict},
		"use of nothing":               {nil, profile.Use{}, 0, fault.NotFound},
		"malformed":                    {nil, profile.Create{}, 0, fault.InvalidConfig},
		"a public name":                {nil, publish, 1, ""},
		"its own public name again":    {[]profile.Command{publish}, publish, 0, ""},
		"another's public name":        {[]profile.Command{publish}, other, 0, fault.Conflict},
		"a public name that was lost":  {[]profile.Command{publish}, instead, 1, ""},
		"a public name given back":     {[]profile.Command{publish}, profile.Withdraw{Tenant: tenant(1)}, 1, ""},
		"another's name given back":    {[]profile.Command{publish}, profile.Withdraw{Tenant: tenant(2)}, 0, ""},
		"a public name that was freed": {[]profile.Command{publish, profile.Withdraw{Tenant: tenant(1)}}, other, 1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var s profile.State
			for _, c := range tt.given {
				events, err := profile.Decide(s, c)
				if err != nil {
					t.Fatal(err)
				}
				s = profile.Decider.Fold(s, events...)
			}
			events, err := profile.Decide(s, tt.when)
			if fault.CodeOf(err) != tt.err || len(events) != tt.events {
				t.Fatalf("got %v, %v", events, err)
			}
		})
	}
}

func TestRandomVerbsKeepWhatIsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s profile.State
		used := ""
		for range rapid.IntRange(1, 30).Draw(t, "verbs") {
			events, err := profile.Decide(s, rapid.SampledFrom([]profile.Command{
				draft("a"), draft("b"), draft("c"), profile.Use{},
			}).Draw(t, "verb"))
			if err == nil {
				s = profile.Decider.Fold(s, events...)
			}
			if s.Used && used == "" {
				used = s.Digest
			}
			if digest, _ := profile.Digest(s.Document); s.Exists() && digest != s.Digest || used != "" && s.Digest != used {
				t.Fatalf("a version in use changed: %+v", s)
			}
		}
	})
}
