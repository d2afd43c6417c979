package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// shortest is how long a secret must be to be looked for: shorter ones are found by chance.
const shortest = 4

// secrets are the values that one order fetched. Nothing that is told of the order holds them: handlers take care, and this
// is the second line.
type secrets struct {
	mu     sync.Mutex
	values []string
}

// add notes a value. Of a document such as {"username": …, "password": …} it is each text but the name.
func (s *secrets) add(value []byte) {
	found := []string{string(value)}
	var document map[string]any
	if json.Unmarshal(value, &document) == nil {
		for name, v := range document {
			if text, ok := v.(string); ok && name != "username" {
				found = append(found, text)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range found {
		if len(text) >= shortest {
			s.values = append(s.values, text)
		}
	}
}

// clean takes every secret out of a text.
func (s *secrets) clean(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		text = strings.ReplaceAll(text, v, redacted)
	}
	return text
}

// cleanJSON does the same within JSON, where a text may be escaped.
func (s *secrets) cleanJSON(text []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values {
		quoted, err := json.Marshal(v)
		if err != nil {
			continue
		}
		text = bytes.ReplaceAll(text, quoted[1:len(quoted)-1], []byte(redacted))
	}
	return text
}
