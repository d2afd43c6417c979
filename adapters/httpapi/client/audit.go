package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opAuditLog  = get("/v1/audit/log", "after")
	opAuditHead = get("/v1/audit/head")
	opDoctor    = get("/v1/doctor", "limit", "cursor")
)

// auditPatience bounds the making of a signed head: the control plane reads its whole log for it.
const auditPatience = time.Hour

// AuditHead commits to the whole log, signed. Errors: INVALID_STATE where the log does not hold together; RATE_LIMITED
// while it is being read for another caller.
func (c *Client) AuditHead(ctx context.Context, o ...Option) (contract.AuditHead, error) {
	o = append([]Option{func(m *message) { m.timeout = auditPatience }}, o...)
	return call[contract.AuditHead](ctx, c, opAuditHead, nil, nil, nil, o)
}

// AuditLog gives every stored event after a position byte for byte, in the order of positions, up to the end of the log
// as it was when it was asked for. A connection that breaks off is resumed after the last event. An error ends it.
func (c *Client) AuditLog(ctx context.Context, after uint64, o ...Option) iter.Seq2[contract.AuditEvent, error] {
	return c.AuditLogUntil(ctx, after, &LogEnd{}, o...)
}

// LogEnd is what the control plane says of the log that it gives.
type LogEnd struct {
	Position uint64 // of the newest event
	Dense    bool   // positions rise by one: a gap is a removed event
}

// AuditLogUntil is AuditLog that also fills end in, before the first event.
func (c *Client) AuditLogUntil(
	ctx context.Context, after uint64, end *LogEnd, o ...Option,
) iter.Seq2[contract.AuditEvent, error] {
	return func(yield func(contract.AuditEvent, error) bool) {
		for failures := 0; ; {
			progress := false
			err := c.auditOnce(ctx, after, end, o, func(e contract.AuditEvent) bool {
				after, progress = e.Position, true
				return yield(e, nil)
			})
			if progress {
				failures = 0
			}
			failures++
			switch {
			case err == nil, errors.Is(err, errStopped):
				return
			case failures >= c.attempts || !again(err), waitFor(ctx, c.pause(failures, askedPause(err))) != nil:
				yield(contract.AuditEvent{}, err)
				return
			}
		}
	}
}

// auditOnce reads the log over one connection.
func (c *Client) auditOnce(
	ctx context.Context, after uint64, end *LogEnd, o []Option, take func(contract.AuditEvent) bool,
) error {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}}
	res, err := c.open(ctx, opAuditLog, nil, q, append([]Option{acceptLines}, o...))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // a stream is over when it is left
	end.Dense = res.Header.Get(contract.HeaderDense) == "true"
	if until, err := strconv.ParseUint(res.Header.Get(contract.HeaderPosition), 10, 64); err == nil {
		end.Position = max(end.Position, until)
	}
	d := json.NewDecoder(bufio.NewReaderSize(res.Body, 256<<10))
	for {
		var e contract.AuditEvent
		err := d.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.unreachable(err)
		case !take(e):
			return errStopped
		}
	}
}

func acceptLines(m *message) { m.header.Set("Accept", "application/x-ndjson") }

// Doctor goes through what needs somebody's attention.
func (c *Client) Doctor(ctx context.Context, o ...Option) iter.Seq2[contract.Finding, error] {
	return pages[contract.Finding](ctx, c, opDoctor, nil, nil, o)
}
