package esdb

import (
	"log/slog"
	"time"
)

// Options tune a Store. The zero value is right for a cluster with the server's default settings.
type Options struct {
	// StreamPrefix is put before every stream's name on the server, so that several installations can share a cluster:
	// each sees only its own. It is not part of the stream's name here, nor of its hash chain. Empty: none.
	StreamPrefix string

	// Patience is how long a call looks for a server and repeats what failed before it returns event.ErrUnavailable or
	// event.ErrUnknownOutcome; a shorter context ends it sooner. 10 s if zero.
	Patience time.Duration

	// CallTimeout is how long one request may take before its client counts as hanging and is replaced. 5 s if zero.
	CallTimeout time.Duration

	// Watch is how often the subscription behind Changed is compared with the head of the log. 10 s if zero.
	Watch time.Duration

	// MaxAppendBytes bounds data, metadata and type names of one append: the server's MaxAppendSize. 1 MiB, the server's
	// default, if zero.
	MaxAppendBytes int

	// ScanLimit is how many events of $all one ReadAll looks at. 10,000 if zero.
	ScanLimit int

	// Logger gets what the client says and when it is replaced. Nothing is logged if nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.Watch <= 0 {
		o.Watch = 10 * time.Second
	}
	if o.MaxAppendBytes <= 0 {
		o.MaxAppendBytes = 1 << 20
	}
	if o.ScanLimit <= 0 {
		o.ScanLimit = 10_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
