package bmcsim_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

func TestRulesCount(t *testing.T) {
	for _, test := range []struct {
		name string
		rule bmcsim.Rule
		want []int
	}{
		{"from the start", bmcsim.Rule{Status: 503}, []int{503, 503, 503, 503, 503, 503}},
		{"the second", bmcsim.Rule{Status: 503, Nth: 2, Times: 1}, []int{200, 503, 200, 200, 200, 200}},
		{"every second", bmcsim.Rule{Status: 401, Every: 2}, []int{401, 200, 401, 200, 401, 200}},
		{"every second from the third, twice", bmcsim.Rule{Status: 401, Nth: 3, Every: 2, Times: 2}, []int{200, 200, 401, 200, 401, 200}},
		{"another path", bmcsim.Rule{Status: 503, Path: "*/Managers*"}, []int{200, 200, 200, 200, 200, 200}},
		{"a glob, whatever its case", bmcsim.Rule{Status: 503, Path: "/redfish/*/systems", Method: "get", Times: 1}, []int{503, 200, 200, 200, 200, 200}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, bmcsim.Standard)
			c.rules.Add(test.rule)
			var got []int
			for range test.want {
				got = append(got, c.do(http.MethodGet, "/redfish/v1/Systems", "").status)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v", got)
			}
			c.rules.Clear()
			c.get("/redfish/v1/Systems")
		})
	}
}

func TestRulesBreak(t *testing.T) {
	reset := func(c *client) (reply, error) {
		return c.try(http.MethodPost, "/redfish/v1/Systems/437XR1138R2/Actions/ComputerSystem.Reset", `{"ResetType":"On"}`)
	}
	for _, test := range []struct {
		name   string
		rule   bmcsim.Rule
		fails  bool
		status int
		done   bool
	}{
		{"lie", bmcsim.Rule{Lie: true}, false, 204, false},
		{"drop before", bmcsim.Rule{Drop: bmcsim.DropBefore}, true, 0, false},
		{"drop after", bmcsim.Rule{Drop: bmcsim.DropAfter}, true, 0, true},
		{"body", bmcsim.Rule{Status: 400, Body: []byte(`{"error":{}}`)}, false, 400, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := serve(t, bmcsim.Standard)
			c.rules.Add(test.rule)
			r, err := reset(c)
			if (err != nil) != test.fails || r.status != test.status || (len(c.board.resets) > 0) != test.done {
				t.Errorf("%d %v, done %v", r.status, err, c.board.resets)
			}
		})
	}
}

func TestRulesTruncate(t *testing.T) {
	c := serve(t, bmcsim.Standard)
	c.rules.Add(bmcsim.Rule{Path: "*/Systems/*", Truncate: 10, Times: 1})
	if _, err := c.try(http.MethodGet, "/redfish/v1/Systems/437XR1138R2", ""); err == nil {
		t.Error("a truncated body passes")
	}
	c.system()
}

func TestRulesDelay(t *testing.T) {
	c := serve(t, bmcsim.Standard)
	var slept []time.Duration
	c.rules.Sleep = func(_ context.Context, d time.Duration) error {
		slept = append(slept, d)
		return nil
	}
	c.rules.Add(bmcsim.Rule{Delay: bmcsim.Duration(12 * time.Second), Times: 1})
	c.get("/redfish/v1/Systems")
	if !slices.Equal(slept, []time.Duration{12 * time.Second}) {
		t.Errorf("%v", slept)
	}
}
