// Package plane is a control plane, wired: the stores, the read models, the verbs, the process managers, the HTTP API and
// the gateway of the agents. metald runs it; so can another program that brings steps, profiles and agent commands of its
// own (Extensions).
package plane

import (
	"log/slog"
	"time"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/processmanagers/steps"
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

	Gateway Gateway

	// Kernel and Initrd are what machines boot from the network: URLs, or names among the boot files of their site's agent.
	Kernel, Initrd string
	KernelArgs     []string

	HardwareProfiles map[string]commands.HardwareProfile
	Extensions       Extensions

	Policies string        // directory of Cedar policies that may only forbid; empty: none
	Drain    time.Duration // how long requests may take to finish at the end
	Logger   *slog.Logger
	Version  string
}

// Gateway is where agents reach the control plane.
type Gateway struct {
	Listen string
	URL    string   // as agents are told; empty: the address that it listens on
	Names  []string // DNS names and IP addresses of its certificate, besides the one in URL
}

// Extensions is what a program adds to the product. A name that is taken is INVALID_CONFIG at the start.
type Extensions struct {
	Steps     []steps.Step
	Profiles  []profile.Document
	Kinds     []agentcommand.Kind
	Templates map[string]steps.Template // of user data, by name
	// Attestor replaces the check of signed results; nil: the node's signature is checked against its certificates.
	Attestor commands.Attestor
}

// Addresses is where a control plane answers.
type Addresses struct {
	API      string // URL of the HTTP API
	Gateway  string // URL of the gateway
	CASHA256 string // by which agents know it
}
