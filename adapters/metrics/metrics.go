// Package metrics counts what operators watch, for Prometheus; nothing else knows Prometheus.
//
// It has a registry of its own: two control planes in one process, as in tests, don't meet. Labels are taken from
// closed lists (methods, route patterns, projection names, kinds of finding), never from what a caller sent: an
// address, an id or a credential can't get into one, and the number of series is bounded.
package metrics

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// seconds are the buckets of durations, from a cached read to the longest wait for a read model.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Metrics holds every series of one control plane. Safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests       *prometheus.CounterVec
	requestSeconds *prometheus.HistogramVec
	appends        *prometheus.CounterVec
	appendEvents   prometheus.Counter
	appendSeconds  prometheus.Histogram
	catchUps       *prometheus.CounterVec
	catchUpSeconds *prometheus.HistogramVec
	refused        *prometheus.CounterVec
	cutOff         prometheus.Counter
	work           work
}

// New makes the series; those of Go's runtime, of the process and of the build are among them.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: counters("metal_http_requests_total", "HTTP requests answered.", "method", "route", "status"),
		requestSeconds: histograms("metal_http_request_seconds",
			"Time from a request to the end of its answer. Event streams count when they end.", "method", "route"),
		appends: counters("metal_appends_total",
			"Appends to the log by outcome; conflict is a lost race, unknown one whose connection died.", "outcome"),
		appendEvents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "metal_append_events_total", Help: "Events that were appended to the log.",
		}),
		appendSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "metal_append_seconds", Help: "Time an append took, whatever its outcome.", Buckets: seconds,
		}),
		catchUps: counters("metal_projection_runs_total",
			"Runs of a projection from its checkpoint to the head of the log.", "projection", "outcome"),
		catchUpSeconds: histograms("metal_projection_run_seconds", "Time such a run took.", "projection"),
		refused:        counters("metal_credentials_refused_total", "Credentials that were not accepted, by reason.", "reason"),
		cutOff: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "metal_subscribers_cut_off_total", Help: "Event streams ended because their reader was too slow.",
		}),
		work: newWork(),
	}
	m.registry.MustRegister(m.work.all()...)
	m.registry.MustRegister(m.requests, m.requestSeconds, m.appends, m.appendEvents, m.appendSeconds,
		m.catchUps, m.catchUpSeconds, m.refused, m.cutOff, buildInfo(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers a scrape in the format that the scraper asks for. What can't be collected is left out; see
// metal_source_up.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 2 * sourceTimeout,
	})
}

// Request counts one answered HTTP request. route is the pattern it matched, such as /v1/nodes/{id}; empty: none.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	if route == "" {
		route = "unmatched"
	}
	method = knownMethod(method)
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.requestSeconds.WithLabelValues(method, route).Observe(took.Seconds())
}

// CaughtUp counts one run of a projection. It has the form of the bus's Observe hook.
func (m *Metrics) CaughtUp(projection string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.catchUps.WithLabelValues(projection, outcome).Inc()
	m.catchUpSeconds.WithLabelValues(projection).Observe(took.Seconds())
}

// Refused counts a credential that was not accepted. reason is of a closed list: missing, malformed, invalid, limited.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// CutOff counts an event stream that was ended because its reader was too slow.
func (m *Metrics) CutOff() { m.cutOff.Inc() }

// knownMethod keeps a caller from making series by inventing methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return "other"
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
}

// buildInfo is 1 with the version and revision that Go built into the program.
func buildInfo() prometheus.Collector {
	version, revision, goVersion := "unknown", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = info.Main.Version, info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "metal_build_info", Help: "1, with what the program was built from.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion},
	}, func() float64 { return 1 })
}
