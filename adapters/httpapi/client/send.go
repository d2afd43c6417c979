package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// Option changes one call.
type Option func(*message)

// IfMatch lets a verb through only at this version of what it changes, else CONFLICT.
func IfMatch(version uint64) Option {
	return func(m *message) { m.header.Set("If-Match", `"`+strconv.FormatUint(version, 10)+`"`) }
}

// IdempotencyKey names a mutation, instead of a key made for it. The same key and body again give the first outcome.
func IdempotencyKey(key string) Option {
	return func(m *message) { m.header.Set(contract.HeaderIdempotencyKey, key) }
}

// AtPosition makes a read wait, bounded, until what it reads has reached a position of the log.
func AtPosition(position uint64) Option {
	return func(m *message) { m.header.Set(contract.HeaderPosition, strconv.FormatUint(position, 10)) }
}

// CorrelationID groups what one undertaking asks for; every event that it leads to carries it.
func CorrelationID(id string) Option {
	return func(m *message) { m.header.Set(contract.HeaderCorrelationID, id) }
}

// message is one request before it is sent, perhaps several times.
type message struct {
	op     operation
	path   string
	query  url.Values
	header http.Header
	body   []byte // nil: none

	timeout time.Duration // of one attempt
	late    bool          // it was done, and the read models do not show it yet
}

const jsonType = "application/json"

func (c *Client) message(op operation, parameters []string, query url.Values, body any, options []Option,
) (*message, error) {
	m := &message{op: op, path: op.to(parameters...), query: query, header: http.Header{}, timeout: c.timeout}
	m.header.Set("Accept", jsonType)
	m.header.Set(contract.HeaderRequestID, uuid.Must(uuid.NewV7()).String())
	if op.mutates() {
		m.header.Set(contract.HeaderIdempotencyKey, uuid.Must(uuid.NewV7()).String())
	} else if seen := c.seen.Load(); seen > 0 {
		AtPosition(seen)(m)
	}
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		m.body = raw
		m.header.Set("Content-Type", jsonType)
	}
	for _, o := range options {
		o(m)
	}
	return m, nil
}

// request makes one attempt of the message.
func (c *Client) request(ctx context.Context, m *message) (*http.Request, error) {
	u := c.base.JoinPath(m.path)
	u.RawQuery = m.query.Encode()
	var body io.Reader
	if m.body != nil {
		body = bytes.NewReader(m.body)
	}
	r, err := http.NewRequestWithContext(ctx, m.op.method, u.String(), body)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidInput, "the request cannot be made")
	}
	r.Header = m.header.Clone()
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.userAgent != "" {
		r.Header.Set("User-Agent", c.userAgent)
	}
	return r, nil
}

// maxAnswer bounds what is read of an answer that is not a stream: a page of a hundred machines with their inventories.
const maxAnswer = 64 << 20

// call sends a message until it is answered for good, and decodes the answer.
func call[T any](ctx context.Context, c *Client, op operation, parameters []string, query url.Values, body any,
	options []Option,
) (T, error) {
	var answer T
	m, err := c.message(op, parameters, query, body, options)
	if err != nil {
		return answer, err
	}
	raw, _, err := c.repeat(ctx, m)
	if err != nil || len(raw) == 0 {
		return answer, err
	}
	if m.late {
		c.settle(ctx)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, fault.Wrap(err, fault.Internal, "the answer of %s cannot be read: %s", c.base, err)
	}
	return answer, nil
}

// once is one attempt.
func (c *Client) once(ctx context.Context, m *message) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	r, err := c.request(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, nil, c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }() // everything that matters was read
	if res.StatusCode >= 300 {
		return nil, nil, problemOf(res)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, nil, c.unreachable(err)
	case len(raw) > maxAnswer:
		return nil, nil, fault.New(fault.Internal, "the answer of %s is larger than %d bytes", c.base, maxAnswer)
	}
	if m.op.mutates() {
		c.wrote(res.Header)
		m.late = res.StatusCode == http.StatusAccepted
	}
	return raw, res.Header, nil
}

// Position is how far the read models have come: whatever happens later has a higher one.
func (c *Client) Position(ctx context.Context, o ...Option) (uint64, error) {
	m, err := c.message(opListNodes, nil, url.Values{"limit": {"1"}}, nil, o)
	if err != nil {
		return 0, err
	}
	_, header, err := c.repeat(ctx, m)
	if err != nil {
		return 0, err
	}
	position, err := strconv.ParseUint(header.Get(contract.HeaderPosition), 10, 64)
	if err != nil {
		return 0, fault.New(fault.Internal, "the answer of %s does not tell its position", c.base)
	}
	return position, nil
}

// settle waits, bounded, until the read models show what this client wrote, so that other clients that come after it see
// it too. What was done stays done: that the wait failed is nobody's error.
func (c *Client) settle(ctx context.Context) {
	for _, list := range []operation{opListNodes, opListTenants} {
		m, err := c.message(list, nil, url.Values{"limit": {"1"}}, nil, nil)
		if err == nil {
			_, _, _ = c.repeat(ctx, m)
		}
	}
}

// wrote remembers the position of a mutation, for later reads to wait for.
func (c *Client) wrote(h http.Header) {
	position, err := strconv.ParseUint(h.Get(contract.HeaderPosition), 10, 64)
	if err != nil {
		return // an answer without a position changed nothing
	}
	for {
		seen := c.seen.Load()
		if position <= seen || c.seen.CompareAndSwap(seen, position) {
			return
		}
	}
}

// repeat tries until there is an answer for good: at most c.attempts times, with growing pauses.
func (c *Client) repeat(ctx context.Context, m *message) ([]byte, http.Header, error) {
	for attempt := 1; ; attempt++ {
		raw, header, err := c.once(ctx, m)
		asked := askedPause(err)
		if err == nil || attempt >= c.attempts || !again(err) || asked > mostAsked {
			return raw, header, err
		}
		if waitFor(ctx, c.pause(attempt, asked)) != nil {
			return nil, nil, err // the reason why it was not answered says more than the caller's own deadline
		}
	}
}

// again tells errors after which the same may be sent once more: nothing reached the control plane, or it asks for it.
func again(err error) bool {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
	}
	return fault.CodeOf(err) == fault.Unavailable && !certificate(err)
}

func askedPause(err error) time.Duration {
	var p *Problem
	if errors.As(err, &p) {
		return p.RetryAfter
	}
	return 0
}

func waitFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
