package redfish

import (
	"context"
	"strings"

	"github.com/better-compute/metal/adapters/bmc"
)

// pendingJob reports a refusal because a job of BIOS settings waits for a reboot, as Dell's do.
func pendingJob(a *answer) bool {
	return a.says("already committed", "pending job", "job is pending", "job already exists", "pending configuration", "SYS011")
}

// blockedByJob names the job that stands in the way: once it has run, the change may be made.
func (m *machine) blockedByJob(ctx context.Context, a *answer) error {
	e := notReady(patience, "a scheduled configuration job of the controller stands in the way")
	id, text := m.c.words(a)
	e.WithDetail("messageId", id).WithDetail("message", text)
	if job := m.scheduledJob(ctx); job != "" {
		e.WithDetail("job", job)
	}
	return e.WithRemedy(remedies[bmc.NotReady] + "; a reboot lets the job run")
}

// scheduledJob looks for a job of BIOS settings that waits, in the manager's own queue or the standard one.
func (m *machine) scheduledJob(ctx context.Context) string {
	for _, queue := range m.jobQueues(ctx) {
		links, err := m.c.members(ctx, queue)
		if err != nil {
			continue
		}
		for _, l := range links {
			job, _, err := m.c.get(ctx, l)
			if err != nil || !strings.Contains(strings.ToLower(job.text("JobType")), "bios") {
				continue
			}
			state := strings.ToLower(job.text("JobState") + job.text("TaskState"))
			if strings.Contains(state, "scheduled") || strings.Contains(state, "pending") || strings.Contains(state, "new") {
				return job.text("Id")
			}
		}
	}
	return ""
}

func (m *machine) jobQueues(ctx context.Context) []string {
	var out []string
	sys, _, err := m.system(ctx)
	if err != nil {
		return nil
	}
	managers, err := m.managers(ctx, sys)
	if err != nil {
		return nil
	}
	for _, path := range managers {
		if doc, _, err := m.c.get(ctx, path); err == nil {
			if q := doc.link("Links", "Oem", "Dell", "Jobs"); q != "" {
				out = append(out, q)
			}
		}
	}
	if root, _, err := m.c.get(ctx, m.c.known().Root); err == nil {
		if service, _, err := m.c.get(ctx, root.link("JobService")); err == nil {
			out = append(out, service.link("Jobs"))
		}
	}
	return out
}
