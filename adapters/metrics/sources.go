package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/better-compute/metal/domain/event"
)

// sourceTimeout bounds what one source may take during a scrape.
const sourceTimeout = 2 * time.Second

// Sources are asked during a scrape, and only then. A nil one is not asked.
type Sources struct {
	// Head is the position of the newest event of the log.
	Head func(context.Context) (event.Position, error)
	// Projections tell how far each is, by name.
	Projections map[string]func() event.Position
	// Findings counts what doctor finds, by kind. A kind without findings should be there with 0, so that an alert can
	// tell "none" from "not looked".
	Findings func(context.Context) (map[string]int, error)
	// Subscribers counts the open event streams.
	Subscribers func() int
	// Wakeups tells how many keys are due, and for how long the oldest has been.
	Wakeups func(context.Context) (due int, age time.Duration, err error)
	// Boots is at how many sites an agent that is connected to this process has the boot lease.
	Boots func() int
}

// Watch adds sources; it is called once. metal_source_up tells which of them answered.
func (m *Metrics) Watch(s Sources) { m.registry.MustRegister(watched{s}) }

type watched struct{ sources Sources }

var (
	sourceUp = prometheus.NewDesc("metal_source_up",
		"1 where what the series of a source come from could be asked.", []string{"source"}, nil)
	logPosition = prometheus.NewDesc("metal_log_position",
		"Position of the newest event of the log.", nil, nil)
	projectionPosition = prometheus.NewDesc("metal_projection_position",
		"Position up to which a projection has applied every event.", []string{"projection"}, nil)
	projectionLag = prometheus.NewDesc("metal_projection_lag",
		"Positions between a projection and the newest event; not every store has dense positions.",
		[]string{"projection"}, nil)
	findings = prometheus.NewDesc("metal_doctor_findings",
		"What doctor finds now, by kind.", []string{"kind"}, nil)
	wakeupsDue  = prometheus.NewDesc("metal_wakeups_due", "Keys that process managers must look at now.", nil, nil)
	wakeupsAge  = prometheus.NewDesc("metal_wakeups_age_seconds", "How long the oldest of them has been due.", nil, nil)
	subscribers = prometheus.NewDesc("metal_event_subscribers",
		"Open event streams.", nil, nil)
	bootLeases = prometheus.NewDesc("metal_boot_leases",
		"Sites whose network boot is served by an agent that is connected to this process.", nil, nil)
)

// Describe lists the series.
func (w watched) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		sourceUp, logPosition, projectionPosition, projectionLag, findings, subscribers, wakeupsDue, wakeupsAge, bootLeases,
	} {
		out <- d
	}
}

// Collect asks every source.
func (w watched) Collect(out chan<- prometheus.Metric) {
	w.collectPositions(out)
	w.collectFindings(out)
	w.collectWakeups(out)
	if w.sources.Subscribers != nil {
		out <- gauge(subscribers, float64(w.sources.Subscribers()))
	}
	if w.sources.Boots != nil {
		out <- gauge(bootLeases, float64(w.sources.Boots()))
	}
}

func (w watched) collectPositions(out chan<- prometheus.Metric) {
	var head event.Position
	known := false
	if w.sources.Head != nil {
		ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
		defer cancel()
		p, err := w.sources.Head(ctx)
		head, known = p, err == nil
		out <- up("log", known)
	}
	if known {
		out <- gauge(logPosition, float64(head))
	}
	for name, position := range w.sources.Projections {
		at := position()
		out <- gauge(projectionPosition, float64(at), name)
		if known { // a projection may have read further than the head that was asked for a moment ago
			out <- gauge(projectionLag, float64(head-min(head, at)), name)
		}
	}
}

func (w watched) collectFindings(out chan<- prometheus.Metric) {
	if w.sources.Findings == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	byKind, err := w.sources.Findings(ctx)
	out <- up("doctor", err == nil)
	if err != nil {
		return
	}
	for kind, n := range byKind {
		out <- gauge(findings, float64(n), kind)
	}
}

func (w watched) collectWakeups(out chan<- prometheus.Metric) {
	if w.sources.Wakeups == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	due, age, err := w.sources.Wakeups(ctx)
	out <- up("wakeups", err == nil)
	if err == nil {
		out <- gauge(wakeupsDue, float64(due))
		out <- gauge(wakeupsAge, age.Seconds())
	}
}

func up(source string, ok bool) prometheus.Metric {
	value := 0.0
	if ok {
		value = 1
	}
	return gauge(sourceUp, value, source)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
