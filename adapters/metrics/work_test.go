package metrics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/metrics"
)

func TestWork(t *testing.T) {
	m := metrics.New()
	m.Pass("workflow", 3*time.Millisecond, nil)
	m.Pass("workflow", time.Millisecond, errors.New("away"))
	a := m.Agents()
	a.Served("/agent/v1/poll", 200, time.Second)
	a.Refused("FORBIDDEN")
	a.Refused("hunter2")
	a.HandedOut("disk.wipe")
	a.Settled("disk.wipe", "succeeded", nil)
	a.Settled("disk.wipe", "succeeded", errors.New("forged"))
	m.Watch(metrics.Sources{Wakeups: func(context.Context) (int, time.Duration, error) { return 3, 1500 * time.Millisecond, nil }})
	wantLines(t, scrape(t, m),
		`metal_passes_total{manager="workflow",outcome="ok"} 1`,
		`metal_passes_total{manager="workflow",outcome="error"} 1`,
		`metal_gateway_requests_total{route="/agent/v1/poll",status="200"} 1`,
		`metal_joins_refused_total{code="FORBIDDEN"} 1`,
		`metal_joins_refused_total{code="INTERNAL"} 1`,
		`metal_agent_commands_handed_out_total{kind="disk.wipe"} 1`,
		`metal_agent_command_results_total{kind="disk.wipe",status="succeeded"} 1`,
		`metal_agent_command_results_total{kind="disk.wipe",status="refused"} 1`,
		`metal_wakeups_due 3`, `metal_wakeups_age_seconds 1.5`)
}
