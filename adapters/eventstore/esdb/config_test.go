package esdb_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/metal/adapters/eventstore/esdb"
	"github.com/better-compute/metal/domain/fault"
)

// TestBadConnectionStrings names every issue, and never shows what may be a part of the password.
func TestBadConnectionStrings(t *testing.T) {
	for connection, paths := range map[string][]string{
		"":                                      {"connection.hosts[0]", "connection.scheme"},
		"postgres://localhost":                  {"connection.scheme"},
		"localhost:2113":                        {"connection.hosts[0]", "connection.scheme"},
		"esdb://":                               {"connection.hosts[0]"},
		"esdb://a,,c":                           {"connection.hosts[1]"},
		"esdb://a:0,b:99999,c:x":                {"connection.hosts[0]", "connection.hosts[1]", "connection.hosts[2]"},
		"esdb://[::1]:2113":                     {"connection.hosts[0]"},
		"esdb://admin:sesame%zz@host":           {"connection.user"},
		"esdb://admin:sesame#1@host:1/path":     {"connection.hosts[0]"},
		"esdb://admin@host":                     {"connection.user"},
		"esdb://:sesame@host":                   {"connection.user"},
		"esdb://admin:open?sesame@host":         {"connection.hosts[0]", "connection.settings"},
		"esdb://host?tls=maybe&sesame=1":        {"connection.settings", "connection.settings.tls"},
		"esdb://host?tls=true&tls=false":        {"connection.settings.tls"},
		"esdb://host?nodePreference=follower":   {"connection.settings.nodepreference"},
		"esdb://host?keepAliveInterval=soon":    {"connection.settings.keepaliveinterval"},
		"esdb://host?maxDiscoverAttempts=many":  {"connection.settings.maxdiscoverattempts"},
		"esdb://host?tlsCAFile=/does/not/exist": {"connection.settings.tlscafile"},
		"esdb://host?userCertFile=only.pem":     {"connection"},
		"esdb://host?defaultDeadline=later":     {"connection.settings.defaultdeadline"},
	} {
		_, err := esdb.New(t.Context(), connection, registry(t), brisk())
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.InvalidConfig {
			t.Errorf("%q: %v", connection, err)
			continue
		}
		var got []string
		for _, issue := range e.Issues {
			got = append(got, issue.Path)
		}
		slices.Sort(got)
		if diff := cmp.Diff(paths, got); diff != "" {
			t.Errorf("%q: %v:\n%s", connection, err, diff)
		}
		if strings.Contains(connection, ":sesame") || strings.Contains(connection, "open?") {
			if text := err.Error() + e.Remedy; strings.Contains(text, "sesame") {
				t.Errorf("%q: the error shows the password: %s", connection, text)
			}
		}
	}
}
