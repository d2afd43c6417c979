package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/projections"
)

// Severity says how soon a finding wants a person.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // the control plane itself stands still
	Error    Severity = "error"    // a machine needs a decision
	Warning  Severity = "warning"  // look when there is time
	Info     Severity = "info"     // nothing to do; good to know
)

// Code names a kind of finding.
type Code string

// The codes. Codes says what each means.
const (
	MetalFailed       Code = "metal-failed"
	MetalStalled      Code = "metal-stalled"
	WorkflowsStuck    Code = "workflows-stuck"
	WorkflowsFailed   Code = "workflows-failed"
	PassesFailing     Code = "passes-failing"
	ProjectionStopped Code = "projection-stopped"
	ProjectionLagging Code = "projection-lagging"
	ClaimsOrphaned    Code = "orphaned-claims"
	BootUnserved      Code = "boot-unserved"
)

// CodeInfo is one row of Codes.
type CodeInfo struct {
	Code     Code
	Severity Severity
	Meaning  string
	Remedy   string
}

// Codes is the closed list.
var Codes = []CodeInfo{
	{MetalFailed, Error, "a workflow failed or was aborted, and the machine waits in failed",
		"read the error, then `metalctl recover`, retry the workflow, `retire`, or `abandon` a machine that is gone"},
	{MetalStalled, Warning, "nothing has happened to a machine in a state that should move on by itself",
		"look at its workflow and its site agent; `metalctl abort` stops a running workflow"},
	{WorkflowsStuck, Warning, "a step is more than 5 minutes past its deadline: nobody is running its workflow",
		"look whether a replica of metald runs and what its log says about wake-ups; it goes on by itself once one looks"},
	{WorkflowsFailed, Info, "a workflow failed within the last day",
		"read its error with `metalctl workflow get`; `metalctl workflow retry` runs it again from the step that failed"},
	{PassesFailing, Warning, "a process manager fails at a machine or a workflow again and again, which therefore does not move on",
		"read the error; it is tried again by itself, at least each minute"},
	{ProjectionStopped, Critical, "a read model can't apply an event; what it shows is older than the log",
		"run a program that can apply the event at the position named; it goes on by itself, and no event is skipped"},
	{ProjectionLagging, Warning, "a read model is behind the log",
		"if it does not catch up within minutes, look at the load of PostgreSQL and at the log of metald"},
	{ClaimsOrphaned, Warning, "a BMC or MAC address is held by a machine that never appeared, or is retired",
		"it is released by the next sweep; enrolling with the address is refused until then"},
	{BootUnserved, Warning, "a site has machines to boot, and none of its agents serves network boot",
		"look with `metalctl agent list --role site` whether one runs; it needs --boot-listen and --boot-url, and what its log says"},
}

func info(c Code) CodeInfo {
	for _, row := range Codes {
		if row.Code == c {
			return row
		}
	}
	return CodeInfo{Code: c}
}

// Finding is one thing that needs a person.
type Finding struct {
	Code     Code           `json:"code"`
	Severity Severity       `json:"severity"`
	Subject  string         `json:"subject"` // as node/node_01k…, projection/metalview, claim/mac:02:00:…
	Tenant   string         `json:"tenant,omitempty"`
	Since    time.Time      `json:"since"`
	Message  string         `json:"message"`
	Remedy   string         `json:"remedy"`
	Details  map[string]any `json:"details,omitempty"`
}

// Input is what findings are made from beside the tables. Zero durations are the defaults.
type Input struct {
	Scope    projections.Scope    // what the caller may see; findings without a tenant need All
	Now      time.Time            // by the clock of the log
	Statuses []projections.Status // of the runner
	Stalled  time.Duration        // without any event, for a machine: 15 min
	Lagging  time.Duration        // behind the log, for a read model: 30 s
	Grace    time.Duration        // for a claim whose machine has not appeared: 10 min
}

// The defaults of Input.
const (
	StalledAfter = 15 * time.Minute
	LaggingAfter = 30 * time.Second
	ClaimGrace   = 10 * time.Minute
)

// maxFindings is the most of one code.
const maxFindings = 1000

// Findings lists what is wrong, read models first, then machines, workflows and claims, each the longest lasting first; at most
// 1,000 of one code.
func Findings(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	in = in.complete()
	found := in.projections()
	for _, find := range []func(context.Context, projections.DB, Input) ([]Finding, error){
		failed, stalled, stuck, failedWorkflows, failing, orphaned, unserved,
	} {
		some, err := find(ctx, db, in)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

func (in Input) complete() Input {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&in.Stalled, StalledAfter)
	or(&in.Lagging, LaggingAfter)
	or(&in.Grace, ClaimGrace)
	return in
}

func (f Finding) complete() Finding {
	row := info(f.Code)
	f.Severity, f.Remedy, f.Since = row.Severity, row.Remedy, f.Since.UTC()
	return f
}

// projections finds read models that stand still or lag.
func (in Input) projections() []Finding {
	var found []Finding
	for _, s := range in.Statuses {
		f := Finding{Subject: "projection/" + s.Projection, Details: map[string]any{
			"position": s.Position, "head": s.Head, "behind": s.Behind,
		}}
		switch {
		case !in.Scope.All:
			continue
		case s.Error != "" && s.FailedAt != nil:
			f.Code, f.Since = ProjectionStopped, *s.FailedAt
			f.Message = fmt.Sprintf("the read model %s can't apply the event at position %s: %s",
				s.Projection, s.ErrorPosition, s.Error)
			f.Details["errorPosition"] = s.ErrorPosition
		case s.Since != nil && in.Now.Sub(*s.Since) >= in.Lagging:
			f.Code, f.Since = ProjectionLagging, *s.Since
			f.Details["seconds"] = int(in.Now.Sub(*s.Since) / time.Second)
			f.Message = fmt.Sprintf("the read model %s is %d events and %s behind the log",
				s.Projection, s.Behind, in.Now.Sub(*s.Since).Round(time.Second))
		default:
			continue
		}
		found = append(found, f.complete())
	}
	return found
}

// place are the columns that say where a machine is.
var place = projections.Place{Tenant: "tenant_id", Site: "site_id", Pool: "pool_id", Node: "node_id"}

func failed(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	var w projections.Where
	w.Add("provision_state = {}", string(node.Failed))
	w.Within(in.Scope, place)
	return machines(ctx, db, w, "entered_at", func(r nodeRow) Finding {
		f := Finding{Code: MetalFailed, Since: r.EnteredAt}
		f.Details = map[string]any{"failedFrom": r.FailedFrom, "by": r.FailedBy}
		f.Message = fmt.Sprintf("%s failed while %s: %s", r.Name, r.FailedFrom, r.ErrorMessage)
		if r.FailedBy == string(node.VerbAbort) {
			f.Message = fmt.Sprintf("%s was aborted while %s: %s", r.Name, r.FailedFrom, r.ErrorMessage)
		}
		if r.ErrorCode != "" {
			f.Details["errorCode"] = r.ErrorCode
		}
		return f
	})
}

func stalled(ctx context.Context, db projections.DB, in Input) ([]Finding, error) {
	var moving []string
	for _, row := range node.States {
		if row.Kind == node.WorkflowDriven || row.Kind == node.Waiting {
			moving = append(moving, string(row.State))
		}
	}
	var w projections.Where
	w.Add("provision_state = ANY({}) AND NOT settled", moving)
	w.Add("last_at <= {}", in.Now.Add(-in.Stalled))
	w.Within(in.Scope, place)
	return machines(ctx, db, w, "last_at", func(r nodeRow) Finding {
		return Finding{
			Code: MetalStalled, Since: r.LastAt,
			Message: fmt.Sprintf("nothing has happened to %s, in %s, for %s",
				r.Name, r.Provision, in.Now.Sub(r.LastAt).Round(time.Second)),
			Details: map[string]any{"provisionState": r.Provision, "lastPosition": r.LastPosition},
		}
	})
}

// machines makes a finding of each row that the conditions leave, in the order of a time.
func machines(
	ctx context.Context, db projections.DB, w projections.Where, since string, finding func(nodeRow) Finding,
) ([]Finding, error) {
	sql := `SELECT to_json(t) FROM doctor_nodes t` + w.SQL() + ` ORDER BY ` + since + `, node_id LIMIT ` +
		w.Arg(maxFindings)
	rows, err := db.Query(ctx, sql, w.Args()...)
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	var found []Finding
	var r nodeRow
	_, err = pgx.ForEachRow(rows, []any{&r}, func() error {
		f := finding(r)
		f.Subject, f.Tenant = "node/"+r.Node, r.Tenant
		found = append(found, f.complete())
		r = nodeRow{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("findings: %w", err)
	}
	return found, nil
}
