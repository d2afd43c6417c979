package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
)

// health serves what an operator's machinery asks, without a credential.
func (a *API) health(router chi.Router, metrics http.Handler) {
	router.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { a.well(w) })
	router.Get("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context()); err != nil {
			refuse(w, r, err)
			return
		}
		a.well(w)
	})
	if metrics != nil {
		router.Method(http.MethodGet, "/metrics", metrics)
	}
}

func (a *API) well(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	body, err := encode(map[string]string{"status": "ok", "version": a.version})
	if err == nil {
		_, _ = w.Write(body) // a caller that has gone is told nothing
	}
}

// readyPatience bounds one look at whether the process can serve.
const readyPatience = 2 * time.Second

// ready reports whether the log answers, credentials can be kept, and no read model stands still.
func (a *API) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	head, err := a.store.Head(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the event log does not answer")
	}
	if _, running := a.hub.position(); !running {
		return fault.New(fault.Unavailable, "the feed of events is not running")
	}
	if err := a.secretsReady(ctx); err != nil {
		return err
	}
	for _, name := range a.projections {
		if a.stopped(ctx, name, head) {
			return fault.New(fault.Unavailable, "the read model %s stands still", name).
				WithRemedy("see `metalctl doctor`")
		}
	}
	return nil
}

func (a *API) secretsReady(ctx context.Context) error {
	if a.secrets == nil {
		return nil
	}
	return a.secrets(ctx)
}

// stopped reports whether a read model stands still before a position. It does not wait for one that is merely behind.
func (a *API) stopped(ctx context.Context, name string, head event.Position) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return fault.CodeOf(a.waiter.Wait(ctx, name, head)) == fault.Unavailable
}
