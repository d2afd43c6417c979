package workflow

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

// handed is the secrets that a step was given or put away. None may be in what it leaves behind: results, errors and payloads
// are in the log, for everybody who may read the workflow.
type handed struct {
	mu     sync.Mutex
	values []string
	forms  []string // of the values, as they may be written
}

// shortest is the length in bytes below which a value is no secret that could be told from ordinary text.
const shortest = 6

func (h *handed) add(value []byte) {
	value = bytes.TrimSpace(value)
	if len(value) < shortest {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.values, string(value)) {
		return
	}
	h.values = append(h.values, string(value))
	h.forms = append(h.forms, string(value), hex.EncodeToString(value),
		base64.RawStdEncoding.EncodeToString(value), base64.RawURLEncoding.EncodeToString(value))
}

// small gives the values that are worth keeping from one look at a workflow to the next: what an agent was handed a while ago
// may stand in what it says now.
func (h *handed) small() (values []string) {
	const most = 512
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.values {
		if len(v) <= most {
			values = append(values, v)
		}
	}
	return values
}

// memory is the small secrets of the workflows that run, as far as this process handed them out.
type memory struct {
	mu     sync.Mutex
	values map[id.Workflow][]string
}

// remembered bounds the workflows in memory.
const remembered = 4096

func (m *memory) recall(w id.Workflow) *handed {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &handed{}
	for _, v := range m.values[w] {
		h.add([]byte(v))
	}
	return h
}

// forget drops what is known of a workflow that is over.
func (m *memory) forget(w workflow.State) {
	if !w.Status.Active() {
		m.keep(w.Workflow, &handed{})
	}
}

// keep replaces what is known of a workflow.
func (m *memory) keep(w id.Workflow, h *handed) {
	values := h.small()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(values) == 0 {
		delete(m.values, w)
		return
	}
	if _, known := m.values[w]; !known && len(m.values) >= remembered {
		for other := range m.values {
			delete(m.values, other)
			break
		}
	}
	m.values[w] = values
}

// in tells whether JSON holds a secret anywhere.
func (h *handed) in(raw json.RawMessage) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.forms) == 0 || len(raw) == 0 {
		return false
	}
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return h.inText(string(raw))
	}
	return h.inValue(value)
}

func (h *handed) inValue(v any) bool {
	switch v := v.(type) {
	case string:
		return h.inText(v)
	case []any:
		for _, e := range v {
			if h.inValue(e) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if h.inText(k) || h.inValue(e) {
				return true
			}
		}
	}
	return false
}

func (h *handed) inText(text string) bool {
	for _, form := range h.forms {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// scrub takes secrets out of a text.
func (h *handed) scrub(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, form := range h.forms {
		text = strings.ReplaceAll(text, form, "[redacted]")
	}
	return text
}

// result is what a run gave, as it is stored. One with a secret in it is refused.
func (h *handed) result(result any, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	raw, err := jsonOf(result)
	if err == nil && h.in(raw) {
		return nil, fault.New(fault.InvalidConfig, "the step's result holds a secret; it was not stored").
			WithDetail("path", "result").WithRemedy("put the value into the secret store and return its reference")
	}
	return raw, err
}

// failure is an error as it is stored. One that carries no code is INTERNAL.
func (h *handed) failure(err error) *workflow.Failure {
	var known *fault.Error
	if !errors.As(err, &known) {
		return &workflow.Failure{Code: string(fault.Internal), Message: h.scrub(err.Error())}
	}
	f := &workflow.Failure{Code: string(known.Code), Message: h.scrub(known.Message), Final: steps.Final(err)}
	for _, issue := range known.Issues {
		f.Message += h.scrub("; " + issue.Path + ": " + issue.Message)
	}
	f.Message = h.scrub(known.Advised(f.Message))
	details := known.Details
	if len(details) == 0 {
		return f
	}
	if raw, err := json.Marshal(details); err == nil && !h.in(raw) {
		f.Details = raw
	}
	return f
}

// secrets is the port with an eye on what goes through it.
type secrets struct {
	steps.Secrets
	handed *handed
}

// Put implements steps.Secrets.
func (s secrets) Put(ctx context.Context, key string, value []byte, until time.Time) (node.SecretRef, error) {
	s.handed.add(value)
	return s.Secrets.Put(ctx, key, value, until)
}

// tokens is the port with an eye on what goes through it.
type tokens struct {
	steps.Tokens
	handed *handed
}

// Mint implements steps.Tokens.
func (t tokens) Mint(ctx context.Context, wanted steps.JoinToken) (id.JoinToken, string, error) {
	tokenID, token, err := t.Tokens.Mint(ctx, wanted)
	t.handed.add([]byte(token))
	return tokenID, token, err
}
