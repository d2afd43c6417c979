package httpapi

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

// buffer is a log that may be written and read at once.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// observed counts what an observer is told.
type observed struct {
	mu      sync.Mutex
	served  []string
	refused map[string]int
	open    int
	cut     int
}

func (o *observed) Served(method, route string, status int, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.served = append(o.served, fmt.Sprintf("%s %s %d", method, route, status))
}

func (o *observed) Refused(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused == nil {
		o.refused = map[string]int{}
	}
	o.refused[reason]++
}

func (o *observed) Following(change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open += change
}

func (o *observed) CutOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut++
}

func (o *observed) counts() (open, cut int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open, o.cut
}

func (o *observed) refusals(reason string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused[reason]
}
