package lab

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// balance passes connections on to servers in turn, to the next one where one does not answer: as what stands before several
// replicas does.
func balance(t testing.TB, servers []string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{servers: servers, open: map[net.Conn]bool{}}
	b.busy.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			b.busy.Go(func() { b.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // that ends Accept
		b.close()
		b.busy.Wait()
	})
	return l.Addr().String()
}

type balancer struct {
	servers []string
	turn    atomic.Uint64
	busy    sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// pass joins a connection with one to a server, until either side ends.
func (b *balancer) pass(from net.Conn) {
	defer b.drop(from)
	if !b.keep(from) {
		return
	}
	first := b.turn.Add(1)
	for i := range b.servers {
		to, err := dial(b.servers[(int(first)+i)%len(b.servers)])
		if err != nil {
			continue
		}
		if !b.keep(to) {
			b.drop(to)
			return
		}
		var done sync.WaitGroup
		done.Go(func() {
			_, _ = io.Copy(to, from) // it ends as the connection does
			_ = to.Close()
		})
		_, _ = io.Copy(from, to)
		_ = from.Close()
		done.Wait()
		b.drop(to)
		return
	}
}

func (b *balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.open[c] = true
	}
	return !b.closed
}

func (b *balancer) drop(c net.Conn) {
	_ = c.Close() // it may be closed
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

func (b *balancer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for c := range b.open {
		_ = c.Close() // both sides end
	}
}
