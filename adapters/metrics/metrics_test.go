package metrics_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/metrics"
	"github.com/better-compute/metal/domain/event"
)

// scrape is what Prometheus reads, over HTTP.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", answer.Status, err)
	}
	return string(text)
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("%q is not in:\n%s", line, ours(text))
		}
	}
}

func ours(text string) (out string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "metal_") {
			out += line
		}
	}
	return out
}

func TestRequests(t *testing.T) {
	m := metrics.New()
	m.Request("POST", "/v1/nodes/{id}/deploy", 202, 3*time.Millisecond)
	m.Request("POST", "/v1/nodes/{id}/deploy", 202, 30*time.Millisecond)
	m.Request("POST", "/v1/nodes/{id}/deploy", 409, time.Minute)
	m.Request("hunter2", "", 404, time.Millisecond)
	text := scrape(t, m)
	wantLines(t, text,
		`metal_http_requests_total{method="POST",route="/v1/nodes/{id}/deploy",status="202"} 2`,
		`metal_http_requests_total{method="POST",route="/v1/nodes/{id}/deploy",status="409"} 1`,
		`metal_http_requests_total{method="other",route="unmatched",status="404"} 1`,
		`metal_http_request_seconds_bucket{method="POST",route="/v1/nodes/{id}/deploy",le="0.005"} 1`,
		`metal_http_request_seconds_count{method="POST",route="/v1/nodes/{id}/deploy"} 3`)
	if strings.Contains(text, "hunter2") {
		t.Error("what a caller sent is in a label")
	}
	for _, name := range []string{"go_goroutines ", "metal_build_info{", "process_open_fds "} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// answers is a log whose appends end as told.
type answers struct {
	event.Store
	errs []error
}

func (a *answers) Append(
	context.Context, event.Stream, event.Version, event.Meta, ...event.Event,
) (event.Position, error) {
	err := a.errs[0]
	a.errs = a.errs[1:]
	return 7, err
}

type happened struct{}

func (happened) EventType() string { return "test.happened" }

func TestAppends(t *testing.T) {
	m := metrics.New()
	conflict := &event.ConflictError{Stream: "node-1"}
	log := &answers{errs: []error{
		nil, nil, conflict, event.ErrUnknownOutcome, event.ErrUnavailable,
		&event.LimitError{}, context.Canceled, errors.New("x"),
	}}
	store := m.Store(log)
	for _, want := range log.errs {
		at, err := store.Append(t.Context(), "node-1", 0, event.Meta{}, happened{}, happened{})
		if !errors.Is(err, want) || at != 7 {
			t.Errorf("got %d, %v; want what the log said, %v", at, err, want)
		}
	}
	wantLines(t, scrape(t, m),
		`metal_appends_total{outcome="ok"} 2`,
		`metal_appends_total{outcome="conflict"} 1`,
		`metal_appends_total{outcome="unknown"} 1`,
		`metal_appends_total{outcome="unavailable"} 1`,
		`metal_appends_total{outcome="limit"} 1`,
		`metal_appends_total{outcome="cancelled"} 1`,
		`metal_appends_total{outcome="error"} 1`,
		`metal_append_events_total 4`,
		`metal_append_seconds_count 8`)
}

func TestRunsOfProjections(t *testing.T) {
	m := metrics.New()
	m.CaughtUp("metalview", time.Millisecond, nil)
	m.CaughtUp("metalview", time.Millisecond, errors.New("x"))
	wantLines(t, scrape(t, m),
		`metal_projection_runs_total{outcome="ok",projection="metalview"} 1`,
		`metal_projection_runs_total{outcome="error",projection="metalview"} 1`,
		`metal_projection_run_seconds_count{projection="metalview"} 2`)
}

func TestSources(t *testing.T) {
	m := metrics.New()
	head := func(context.Context) (event.Position, error) { return 100, nil }
	m.Watch(metrics.Sources{
		Head: head,
		Projections: map[string]func() event.Position{
			"metalview": func() event.Position { return 97 },
			"history":   func() event.Position { return 101 },
		},
		Findings: func(context.Context) (map[string]int, error) {
			return map[string]int{"metal-failed": 2, "metal-stalled": 0}, nil
		},
		Subscribers: func() int { return 3 },
	})
	wantLines(t, scrape(t, m),
		`metal_log_position 100`,
		`metal_projection_position{projection="metalview"} 97`,
		`metal_projection_lag{projection="metalview"} 3`,
		`metal_projection_lag{projection="history"} 0`,
		`metal_doctor_findings{kind="metal-failed"} 2`,
		`metal_doctor_findings{kind="metal-stalled"} 0`,
		`metal_event_subscribers 3`,
		`metal_source_up{source="log"} 1`,
		`metal_source_up{source="doctor"} 1`)
}

func TestSourcesThatAreAwayAreLeftOut(t *testing.T) {
	m := metrics.New()
	m.Watch(metrics.Sources{
		Head:        func(context.Context) (event.Position, error) { return 0, event.ErrUnavailable },
		Projections: map[string]func() event.Position{"metalview": func() event.Position { return 97 }},
		Findings:    func(context.Context) (map[string]int, error) { return nil, errors.New("password=hunter2") },
	})
	text := scrape(t, m)
	wantLines(t, text, `metal_source_up{source="log"} 0`, `metal_source_up{source="doctor"} 0`,
		`metal_projection_position{projection="metalview"} 97`)
	for _, absent := range []string{"metal_log_position ", "metal_projection_lag{", "metal_doctor_findings{"} {
		if strings.Contains(text, "\n"+absent) {
			t.Errorf("%s is there:\n%s", absent, ours(text))
		}
	}
	if strings.Contains(text, "hunter2") {
		t.Error("the text of an error is shown")
	}
}
