package id_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/id"
)

func TestRoundTrip(t *testing.T) {
	u := uuid.Must(uuid.NewV7())
	n := id.Of[id.Node](u)
	again, err := id.Parse[id.Node](n.String())
	if err != nil || again != n || again.UUID() != u.String() {
		t.Fatalf("%s: got %s, %v", n, again, err)
	}
	text, err := json.Marshal(struct{ N, Zero id.Node }{N: n})
	if err != nil || !strings.Contains(string(text), n.String()) {
		t.Fatalf("%s, %v", text, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", "node_", "node_x", "wf_01h455vb4pex5vsknk084sn02q", "01h455vb4pex5vsknk084sn02q", "NODE_01h455vb4pex5vsknk084sn02q",
		"node_81h455vb4pex5vsknk084sn02q", "node_01h455vb4pex5vsknk084sn02q ", strings.Repeat("n", 5000),
	} {
		if got, err := id.Parse[id.Node](s); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40q: got %s, %v", s, got, err)
		}
	}
}

func TestIDsSortByTime(t *testing.T) {
	before := ""
	for range 1000 {
		now := id.Of[id.Node](uuid.Must(uuid.NewV7())).String()
		if now <= before {
			t.Fatalf("%s after %s", now, before)
		}
		before = now
	}
}
