package steps_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/processmanagers/steps"
)

func TestFinal(t *testing.T) {
	told := func(details string) error {
		return steps.Refusal(agentcommand.State{
			Requested: agentcommand.Requested{Kind: agentcommand.DriverInvoke}, Status: agentcommand.Failed,
			Reason: "the login was refused", Details: json.RawMessage(details),
		})
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a rejected login":           {told(`{"reason":"credentials-rejected"}`), true},
		"another certificate":        {told(`{"reason":"certificate-changed"}`), true},
		"a busy controller":          {told(`{"reason":"not-ready"}`), false},
		"no reason":                  {told(`{}`), false},
		"details of another form":    {told(`[1]`), false},
		"another machine":            {fault.New(fault.DriverError, "…").WithDetail("reason", "machine-changed"), true},
		"a store that is away":       {fault.New(fault.Unavailable, "…"), false},
		"an image that is not there": {fault.New(fault.NotFound, "…"), true},
		"a bug":                      {errors.New("…"), false},
	} {
		if got := steps.Final(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
