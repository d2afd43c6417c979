package projections_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/better-compute/metal/projections"
)

func TestDifferenceInWords(t *testing.T) {
	key := []string{"id", "n"}
	row := func(text string) json.RawMessage { return json.RawMessage(text) }
	for want, d := range map[string]projections.Difference{
		`notes id="a" n=1: state is "ready", the log says "failed"` + "\n" + `notes id="a" n=1: tags is null, the log says ["x"]`: {
			Live:  row(`{"id":"a","n":1,"state":"ready","tags":null,"same":2}`),
			Fresh: row(`{"id":"a","n":1,"state":"failed","tags":["x"],"same":2}`),
		},
		`notes id="a" n=1: the row is missing; the log says {"id":"a","n":1}`: {Fresh: row(`{"id":"a","n":1}`)},
		`notes id="a" n=1: the log knows no such row; it is {"id":"a","n":1}`: {Live: row(`{"id":"a","n":1}`)},
	} {
		d.Table, d.Key = "notes", key
		if got := d.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	long := projections.Difference{Table: "notes", Live: row(`{"text":"` + strings.Repeat("ü", 5000) + `"}`), Fresh: row(`{}`)}
	if got := long.String(); len(got) > 400 || !strings.Contains(got, "…") || strings.Contains(got, "\uFFFD") {
		t.Errorf("a long value is told as %s", got)
	}
}
