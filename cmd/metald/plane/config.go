// Package plane is a control plane, wired: the stores, the read models, the verbs, the process managers, the HTTP API and
// the gateway of the agents. metald runs it; so can another program that brings steps, profiles and agent commands of its
// own (Extensions).
package plane

import (
	"log/slog"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
)

// Config is everything that a control plane is told.
type Config struct {
	Postgres   string // the database, as a URL or key=value words
	EventStore string // esdb://…; empty: the log is in PostgreSQL
	MasterKey  postgres.MasterKey
	AdminToken string // of the first administrator; empty: one is made and printed at the first start

	Listen       string // address of the HTTP API
	TLSCert      string // file, PEM
	TLSKey       string
	InsecureHTTP bool // no TLS: a proxy terminates it

	Policies string        // directory of Cedar policies that may only forbid; empty: none
	Drain    time.Duration // how long requests may take to finish at the end
	Logger   *slog.Logger
	Version  string
}

// Addresses is where a control plane answers.
type Addresses struct {
	API string // URL of the HTTP API
}
