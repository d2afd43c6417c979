package esdb

import (
	"context"
	"sync"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// maxMoves is how many changes of leader a client makes before it is replaced: each may lose a connection.
const maxMoves = 4

// session is one client and the calls that use it. All but entering is guarded by the manager's lock.
type session struct {
	client   *client.Client
	gone     chan struct{}  // closed once the session is replaced: long calls end then
	entering sync.WaitGroup // calls that may still ask the client for its connection
	calls    int
	moves    int
	closed   bool // whether gone is closed
}

// entry is the context of a call. The client first looks at it when it has its connection, so that is where the call
// has entered.
type entry struct {
	context.Context
	entered func() // may be called again
}

// enter makes the context of a call in s. entered must be called when the call is over, too: it may never have looked.
func (s *session) enter(ctx context.Context) entry {
	return entry{ctx, sync.OnceFunc(s.entering.Done)}
}

// Deadline tells the deadline, and that the call has entered.
func (e entry) Deadline() (time.Time, bool) {
	e.entered()
	return e.Context.Deadline()
}
