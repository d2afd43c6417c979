package redfish

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/metal/adapters/bmc"
)

// settle waits for what an accepted request started. A failed task is a fault. A monitor that is gone is none: whether it
// ended well, only the effect can tell, which every caller reads.
func (c *conn) settle(ctx context.Context, a *answer) error {
	if a.status != http.StatusAccepted {
		return nil
	}
	monitor := localPath(a.header.Get("Location"))
	if doc := a.doc(); monitor == "" && doc != nil {
		if monitor = localPath(doc.text("TaskMonitor")); monitor == "" {
			monitor = doc.link("@odata.id")
		}
	}
	if monitor == "" {
		return nil
	}
	p := c.d.pace()
	pause := c.pauseOf(ctx, a)
	for first := true; ; first = false {
		if (!first || pause > 0) && p.wait(ctx, pause) != nil {
			return ended(ctx)
		}
		r := request{method: http.MethodGet, path: monitor}
		a, err := c.do(ctx, r)
		if err != nil {
			return err
		}
		switch {
		case a.status == http.StatusNotFound || a.status == http.StatusGone:
			return nil
		case a.status == 503 || a.status == 429:
		case !a.ok():
			return c.taskFault(a, "the task ended with status %d", a.status)
		default:
			if over, err := c.judge(a); over {
				return err
			}
		}
		pause = c.pauseOf(ctx, a)
	}
}

// pauseOf is how long the controller asks to wait before a task is looked at again; none where there is not as much time: some name a
// time that has nothing to do with the task's, which is over long before.
func (c *conn) pauseOf(ctx context.Context, a *answer) time.Duration {
	pause := a.retryAfter(c.d.o.Now())
	if !leaves(ctx, pause) {
		return 0
	}
	return pause
}

// judge reads a task, or the answer of the request that it stands for. A state that is not known is one in progress.
func (c *conn) judge(a *answer) (over bool, err error) {
	task := a.doc()
	if !task.has("TaskState") {
		return a.status != http.StatusAccepted, nil
	}
	state, status := schemas.TaskState(task.text("TaskState")), task.text("TaskStatus")
	switch state {
	case schemas.CompletedTaskState:
		if status != "" && !strings.EqualFold(status, string(schemas.OKHealth)) && !strings.EqualFold(status, "Warning") {
			return true, c.taskFault(a, "the task is completed, with status %s", status)
		}
		for _, d := range task.objects("Messages") {
			if asMessage(d).critical {
				return true, c.taskFault(a, "the task is completed, with an error")
			}
		}
		return true, nil
	case schemas.ExceptionTaskState, schemas.KilledTaskState, schemas.CancelledTaskState:
		return true, c.taskFault(a, "the task ended as %s", state)
	default:
		return false, nil
	}
}

func (c *conn) taskFault(a *answer, format string, args ...any) error {
	e := broken(bmc.TaskFailed, format, args...).WithDetail("status", a.status)
	var said []message
	for _, d := range a.doc().objects("Messages") {
		said = append(said, asMessage(d))
	}
	for _, m := range append(said, a.messages()...) {
		if m.id != "" || m.text != "" {
			return e.WithDetail("messageId", c.clean(m.id)).WithDetail("message", c.clean(m.text))
		}
	}
	return e
}
