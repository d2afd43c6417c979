// Package httpapi is the HTTP API: verbs, reads, the feed of events, the audit of the log, health.
//
// A request passes enter (its id, log and metrics), authenticated (its bearer token), mutation (its body and its
// Idempotency-Key), and then its operation, which huma decodes and checks against the structs of package contract. Every
// error is an RFC 9457 problem. What a caller may not see does not exist for it, in the same words.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/better-compute/metal/adapters/ratelimit"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/projections"
)

// Config is what the API needs. Every field is needed, but those that say otherwise.
type Config struct {
	Service     *commands.Service
	Authorizer  commands.Authorizer
	Log         event.Store
	DB          projections.DB // of the read models
	Waiter      Waiter
	Projections []string // that must not stand still for /readyz to be happy
	Outcomes    Outcomes
	Signer      Signer // nil: the head of the log is not offered
	// SecretsReady tells whether credentials can be kept, for /readyz; nil: it is not asked.
	SecretsReady func(context.Context) error
	Clock        commands.Clock
	Logger       *slog.Logger
	Version      string       // of the program
	Metrics      http.Handler // of /metrics; nil: none
	Observer     Observer     // nil: nobody
	// RequestKey keys the hashes of requests that are kept for idempotency: at least 16 bytes, the same in every replica.
	RequestKey []byte
	Steps      []profile.Spec // that profiles may use, for GET /v1/steps; none: there are none
	Gateway    Gateway        // told with every join token that is made
}

// Gateway is what an agent needs besides a join token: where it joins, and by what it knows whom it gives the token to.
type Gateway struct {
	URL      string
	CASHA256 string // of the authority's certificate, lower-case hexadecimal
}

// API serves the HTTP API. Run must run beside it, for the feed of events and to hear of changed principals.
type API struct {
	service     *commands.Service
	authorizer  commands.Authorizer
	store       event.Store
	db          projections.DB
	waiter      Waiter
	projections []string
	outcomes    Outcomes
	signer      Signer
	secrets     func(context.Context) error
	clock       commands.Clock
	log         *slog.Logger
	version     string
	observer    Observer
	requestKey  []byte
	steps       []profile.Spec
	gateway     Gateway

	tokens     *tokens
	attempts   *ratelimit.Limiter[netip.Prefix]
	hub        *hub
	followers  followers
	waits      waits
	heartbeat  time.Duration
	writing    time.Duration // bounds one write to a follower
	sending    time.Duration // bounds the sending of a body
	auditing   chan struct{} // holds a token while the whole log is being read
	nodeFields map[string]bool
	huma       huma.API
	router     chi.Router
}

// New makes the API. An incomplete configuration is an error.
func New(cfg Config) (*API, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	a := &API{
		service: cfg.Service, authorizer: cfg.Authorizer, store: cfg.Log, db: cfg.DB, waiter: cfg.Waiter,
		projections: cfg.Projections, outcomes: cfg.Outcomes, signer: cfg.Signer, secrets: cfg.SecretsReady, clock: cfg.Clock, log: cfg.Logger,
		version: cfg.Version, observer: cfg.Observer, requestKey: cfg.RequestKey, steps: cfg.Steps, gateway: cfg.Gateway,
		tokens:    newTokens(cfg.DB, cfg.Clock),
		attempts:  ratelimit.New[netip.Prefix](attemptBurst, attemptRefill, mostAddresses),
		followers: followers{count: map[id.Principal]int{}},
		waits:     waits{verb: verbPatience, read: readPatience, head: headPatience},
		heartbeat: heartbeat, writing: writeTimeout, sending: bodyTimeout, auditing: make(chan struct{}, 1),
	}
	if a.observer == nil {
		a.observer = unobserved{}
	}
	a.hub = newHub(a.store, a.principalChanged, a.log)
	a.route(cfg.Metrics)
	return a, nil
}

func (c Config) check() error {
	var wrong []error
	need := func(name string, missing bool) {
		if missing {
			wrong = append(wrong, fmt.Errorf("httpapi: Config.%s is needed", name))
		}
	}
	need("Service", c.Service == nil)
	need("Authorizer", c.Authorizer == nil)
	need("Log", c.Log == nil)
	need("DB", c.DB == nil)
	need("Waiter", c.Waiter == nil)
	need("Outcomes", c.Outcomes == nil)
	need("Clock", c.Clock == nil)
	need("Logger", c.Logger == nil)
	const leastKey = 16
	need("RequestKey of 16 bytes or more", len(c.RequestKey) < leastKey)
	return errors.Join(wrong...)
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

func (a *API) route(metrics http.Handler) {
	router := chi.NewRouter()
	router.Use(a.enter, middleware.GetHead)
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, fault.New(fault.NotFound, "there is no such path").WithRemedy("see /docs"))
	})
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(a.allowed(r), ", ")) // RFC 9110, section 15.5.6
		problemOf(r.Context(), fault.New(fault.InvalidInput, "the path has no method %s", method(r)).
			WithRemedy("see /docs")).withStatus(http.StatusMethodNotAllowed).write(w)
	})
	a.router = router
	a.health(router, metrics)
	v1 := router.With(a.authenticated, a.mutation)
	a.huma = humachi.New(v1, humaConfig())
	a.huma.UseMiddleware(strangers)
	a.operations()
	a.documents(router)
}

// allowed are the methods that the path has.
func (a *API) allowed(r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var has []string
	for _, m := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	} {
		if !a.router.Match(chi.NewRouteContext(), m, path) {
			continue
		}
		has = append(has, m)
		if m == http.MethodGet {
			has = append(has, http.MethodHead)
		}
	}
	return has
}

// method is the request's method where it is one of HTTP's, so that no text of a caller's is repeated.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return r.Method
	}
	return "like that"
}

// operations registers everything under /v1.
func (a *API) operations() {
	a.nodeReads()
	a.nodeVerbs()
	a.tenantOperations()
	a.siteOperations()
	a.poolOperations()
	a.profileOperations()
	a.stepOperations()
	a.imageOperations()
	a.workflowOperations()
	a.agentOperations()
	a.joinTokenOperations()
	a.principalOperations()
	a.feed()
	a.findings()
	a.audit()
	openAnswers(a.huma.OpenAPI())
}
