package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/better-compute/metal/domain/fault"
)

// work is what process managers and agents do.
type work struct {
	passes       *prometheus.CounterVec
	passSeconds  *prometheus.HistogramVec
	gateway      *prometheus.CounterVec
	gatewaySpent *prometheus.HistogramVec
	joins        *prometheus.CounterVec
	orders       *prometheus.CounterVec
	results      *prometheus.CounterVec
	bootLeases   *prometheus.CounterVec
}

func newWork() work {
	return work{
		passes:      counters("metal_passes_total", "Looks of a process manager at one key.", "manager", "outcome"),
		passSeconds: histograms("metal_pass_seconds", "Time such a look took.", "manager"),
		gateway:     counters("metal_gateway_requests_total", "Requests of agents answered.", "route", "status"),
		gatewaySpent: histograms("metal_gateway_request_seconds",
			"Time from an agent's request to its answer. A poll waits until there is something to do.", "route"),
		joins:   counters("metal_joins_refused_total", "Joins of agents that were refused, by error code.", "code"),
		orders:  counters("metal_agent_commands_handed_out_total", "Agent commands given to agents, also those given again.", "kind"),
		results: counters("metal_agent_command_results_total", "Results of agent commands; refused: not accepted.", "kind", "status"),
		bootLeases: counters("metal_boot_lease_changes_total",
			"Boot leases of sites that went to an agent (taken), or were given back by one (released).", "change"),
	}
}

func (w work) all() []prometheus.Collector {
	return []prometheus.Collector{w.passes, w.passSeconds, w.gateway, w.gatewaySpent, w.joins, w.orders, w.results, w.bootLeases}
}

// Pass counts one look of a process manager. It has the form of the workers' Observe hook.
func (m *Metrics) Pass(manager string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.work.passes.WithLabelValues(manager, outcome).Inc()
	m.work.passSeconds.WithLabelValues(manager).Observe(took.Seconds())
}

// Agents counts what the gateway does. It has the form of the gateway's Observer.
type Agents struct{ m *Metrics }

// Agents is the gateway's observer.
func (m *Metrics) Agents() Agents { return Agents{m} }

// Served counts one answered request; route is one of the protocol's paths.
func (a Agents) Served(route string, status int, took time.Duration) {
	a.m.work.gateway.WithLabelValues(route, strconv.Itoa(status)).Inc()
	a.m.work.gatewaySpent.WithLabelValues(route).Observe(took.Seconds())
}

// Refused counts a join that was refused. A code that is not of the closed list counts as INTERNAL.
func (a Agents) Refused(code string) {
	a.m.work.joins.WithLabelValues(string(fault.Info(fault.Code(code)).Code)).Inc()
}

// HandedOut counts an order that was given to an agent; kinds are those that the program knows.
func (a Agents) HandedOut(kind string) { a.m.work.orders.WithLabelValues(kind).Inc() }

// BootLease counts a boot lease that was taken or released.
func (a Agents) BootLease(change string) { a.m.work.bootLeases.WithLabelValues(change).Inc() }

// Settled counts a result; err is why it was refused.
func (a Agents) Settled(kind, status string, err error) {
	if err != nil {
		status = "refused"
	}
	a.m.work.results.WithLabelValues(kind, status).Inc()
}
