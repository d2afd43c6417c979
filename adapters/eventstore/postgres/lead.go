package postgres

import (
	"context"
	"time"
)

// past is a deadline that ends whatever waits for it.
var past = time.Unix(1, 0)

// lead appends p on its caller's own goroutine, where nobody else is writing or waiting to: handing it to the appender's
// goroutine and back would cost a lone caller as much as the rest. It reports whether p is taken care of: answered, or,
// where the attempt failed, left to the appender's goroutine, which goes about it as about any other.
func (a *appender) lead(ctx context.Context, p *pending) bool {
	if !a.writing.TryLock() {
		return false
	}
	defer a.writing.Unlock()
	if a.conn == nil || !a.queue.idle() || !p.claim() {
		return false
	}
	conn, ended := a.conn.PgConn().Conn(), make(chan struct{})
	err := a.patience()
	leave := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(past) // the attempt fails, and is made again for whoever asks again
		close(ended)
	})
	if err == nil {
		err = a.try([]*pending{p})
	}
	if !leave() {
		<-ended
	}
	if err != nil {
		a.queue.again(p)
	}
	return true
}
