package workflow

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/processmanagers/steps"
)

// handed is the secrets that one run of a step was given or put away. None may be in what the run leaves behind: results,
// errors and payloads are in the log, for everybody who may read the workflow.
type handed struct {
	mu    sync.Mutex
	forms []string
}

// shortest is the length in bytes below which a value is no secret that could be told from ordinary text.
const shortest = 6

func (h *handed) add(value []byte) {
	if len(value) < shortest {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forms = append(h.forms, string(value), hex.EncodeToString(value),
		base64.RawStdEncoding.EncodeToString(value), base64.RawURLEncoding.EncodeToString(value))
	if trimmed := bytes.TrimSpace(value); len(trimmed) < len(value) && len(trimmed) >= shortest {
		h.forms = append(h.forms, string(trimmed))
	}
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
	f := &workflow.Failure{Code: string(known.Code), Message: h.scrub(known.Message)}
	for _, issue := range known.Issues {
		f.Message += h.scrub("; " + issue.Path + ": " + issue.Message)
	}
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
func (s secrets) Put(ctx context.Context, key string, value []byte) (node.SecretRef, error) {
	s.handed.add(value)
	return s.Secrets.Put(ctx, key, value)
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
