package client

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

var (
	opAuditLog  = get("/v1/audit/log", "after")
	opAuditHead = get("/v1/audit/head")
	opDoctor    = get("/v1/doctor", "limit", "cursor")
)

// AuditHead commits to the whole log, signed.
func (c *Client) AuditHead(ctx context.Context, o ...Option) (contract.AuditHead, error) {
	return call[contract.AuditHead](ctx, c, opAuditHead, nil, nil, nil, o)
}

// AuditLog gives every stored event byte for byte, in the order of positions. An error ends it.
func (c *Client) AuditLog(ctx context.Context, o ...Option) iter.Seq2[contract.AuditEvent, error] {
	return func(yield func(contract.AuditEvent, error) bool) {
		fail := func(err error) { yield(contract.AuditEvent{}, err) }
		res, err := c.open(ctx, opAuditLog, nil, nil, append([]Option{acceptLines}, o...))
		if err != nil {
			fail(err)
			return
		}
		defer func() { _ = res.Body.Close() }() // a stream is over when it is left
		d := json.NewDecoder(bufio.NewReaderSize(res.Body, 256<<10))
		for {
			var line auditLine
			err := d.Decode(&line)
			switch {
			case drained(err):
				return
			case err != nil:
				fail(fault.Wrap(err, fault.Unavailable, "the log broke off: %s", err))
				return
			}
			if !yield(line.AuditEvent, nil) {
				return
			}
		}
	}
}

// auditLine is a line of the log.
type auditLine struct {
	contract.AuditEvent
}

func acceptLines(m *message) { m.header.Set("Accept", "application/x-ndjson") }

// Doctor goes through what needs somebody's attention.
func (c *Client) Doctor(ctx context.Context, o ...Option) iter.Seq2[contract.Finding, error] {
	return pages[contract.Finding](ctx, c, opDoctor, nil, nil, o)
}

var _ = http.MethodGet
