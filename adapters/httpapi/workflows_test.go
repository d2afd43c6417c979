package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/workflow"
	"github.com/better-compute/metal/projections/agents"
)

func TestWorkflowIsReadAndSteered(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	path := "/v1/workflows/" + w.runs(n, "metal-enroll").String()
	read := w.get(path, as(e.token)).want(200)
	wf := into[contract.Workflow](read)
	if wf.Node != n.ID || wf.Profile != "metal-enroll" || wf.State != "running" || wf.Run != 1 || wf.Step == "" || len(wf.Document) == 0 ||
		len(wf.Steps) == 0 || wf.Steps[0].State != "running" || wf.Progress != nil || read.header.Get("ETag") != fmt.Sprintf(`"%d"`, wf.Version) {
		t.Fatalf("%s", read.body)
	}
	if shown := into[contract.Node](w.get("/v1/nodes/" + n.ID).want(200)); shown.Workflow != wf.ID {
		t.Fatalf("the machine's workflow is %s", shown.Workflow)
	}
	w.post(path+"/resume", nil, as(e.token)).problem(409, "INVALID_STATE")
	w.post(path+"/pause", nil, as(e.token), with("If-Match", `"1"`)).problem(409, "CONFLICT")
	paused := w.post(path+"/pause", nil, as(e.token), with("If-Match", read.header.Get("ETag")), with("Idempotency-Key", "k")).want(200)
	if got := into[contract.Workflow](paused); got.State != "paused" {
		t.Fatalf("%+v", got)
	}
	again := w.post(path+"/pause", nil, as(e.token), with("If-Match", read.header.Get("ETag")), with("Idempotency-Key", "k")).want(200)
	if !bytes.Equal(again.body, paused.body) {
		t.Fatalf("%s", again.body)
	}
	seen := into[contract.Workflow](w.get(path+"?minPosition="+paused.header.Get(contract.HeaderPosition), as(e.token)).want(200))
	if seen.State != "paused" {
		t.Fatalf("its own write is not read: %+v", seen)
	}
	w.post(path+"/resume", nil, as(e.token)).want(200)
	w.post(path+"/retry", nil, as(e.token)).problem(409, "INVALID_STATE")
	aborted := into[contract.Workflow](w.post(path+"/abort", contract.Reason{Reason: "wrong machine"}, as(e.token)).want(200))
	if aborted.Reason != "wrong machine" || aborted.State != "cancelled" && aborted.State != "cancelling" {
		t.Fatalf("%+v", aborted)
	}
}

func TestWorkflowIsRetried(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n := w.enroll(e.pool)
	wf := w.runs(n, "metal-enroll")
	path := "/v1/workflows/" + wf.String()
	w.fails(wf)
	failed := into[contract.Workflow](w.get(path).want(200))
	if failed.State != "failed" || failed.Error == nil || failed.Error.Code != "DRIVER_ERROR" || failed.EndedAt == nil {
		t.Fatalf("%+v", failed)
	}
	w.post(path+"/retry", contract.Retry{FromStep: "no-such"}).problem(400, "INVALID_INPUT")
	again := into[contract.Workflow](w.post(path+"/retry", nil, as(e.token)).want(200))
	if again.Run != 2 || again.State == "failed" {
		t.Fatalf("%+v", again)
	}
	w.caughtUp()
	if on := into[contract.Node](w.get("/v1/nodes/" + n.ID).want(200)); on.Provision != "enrolling" || on.Workflow != wf.String() {
		t.Fatalf("%+v", on)
	}
}

func TestProgressOfTheStepInFlight(t *testing.T) {
	w := start(t)
	n := w.enroll(w.estate("acme").pool)
	wf := w.runs(n, "metal-enroll")
	state, _, err := w.service.Workflow(t.Context(), wf)
	if err != nil {
		t.Fatal(err)
	}
	order := id.Of[id.AgentCommand]([16]byte{7})
	must(w.service.WaitWorkflow(context.Background(), system(), wf, workflow.Wait{
		Step: state.InFlight().ID, Attempt: state.InFlight().Attempt, AgentCommand: order,
	}))(t)
	w.caughtUp()
	path := "/v1/workflows/" + wf.String()
	if got := into[contract.Workflow](w.get(path).want(200)); got.Progress != nil || got.Steps[0].AgentCommand != order.String() {
		t.Fatalf("%+v", got)
	}
	told := agents.Progress{Command: order.String(), Agent: id.Of[id.Agent]([16]byte{8}), Percent: 42.5, Message: "writing"}
	if err := postgres.NewPresence(w.pool).Write(t.Context(), nil, []agents.Progress{told}); err != nil {
		t.Fatal(err)
	}
	got := into[contract.Workflow](w.get(path).want(200))
	if got.Progress == nil || got.Progress.Percent != 42.5 || got.Progress.Message != "writing" || got.Progress.At.IsZero() {
		t.Fatalf("%+v", got.Progress)
	}
}

func TestWorkflowsAreListed(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	var made []string
	var nodes []contract.Node
	for i := range 3 {
		n := w.enroll(e.pool)
		nodes = append(nodes, n)
		wf := w.runs(n, "metal-enroll")
		made = append([]string{wf.String()}, made...)
		if i == 0 {
			w.fails(wf)
		}
	}
	read := func(path string) []string {
		t.Helper()
		var got []string
		for cursor, more := "", true; more; more = cursor != "" {
			page := into[contract.List[contract.Workflow]](w.get(path+"&limit=2&cursor="+url.QueryEscape(cursor), as(e.token)).want(200))
			for _, wf := range page.Items {
				if len(wf.Document) > 0 || len(wf.Steps) == 0 {
					t.Fatalf("%+v", wf)
				}
				got = append(got, wf.ID)
			}
			cursor = page.Next
		}
		return got
	}
	for path, want := range map[string][]string{
		"/v1/workflows?x=":                                      made,
		"/v1/workflows?state=failed":                            made[2:],
		"/v1/workflows?state=running,paused":                    made[:2],
		"/v1/workflows?state=running&state=failed":              made,
		"/v1/workflows?profile=metal-enroll&tenant=" + e.tenant: made,
		"/v1/workflows?profile=other":                           nil,
		"/v1/workflows?node=" + nodes[1].ID:                     made[1:2],
		"/v1/nodes/" + nodes[1].ID + "/workflows?state=running": made[1:2],
		"/v1/nodes/" + nodes[1].ID + "/workflows?state=failed":  nil,
	} {
		if got := read(strings.Replace(path, "x=", "limit=2", 1)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	w.get("/v1/workflows?state=flying&node=x&tenant=y").issues("query.state[0]", "query.node", "query.tenant")
	w.get("/v1/workflows?limit=0").issues("query.limit")
	w.get("/v1/nodes/x/workflows?state=running&state=up").issues("path.id", "query.state[1]")
	w.get("/v1/workflows?cursor=x").issues("query.cursor")
	w.get("/v1/workflows/x").issues("path.id")
	w.post("/v1/workflows/x/abort", nil, with("If-Match", "x")).issues("path.id", "header.If-Match")
	w.post("/v1/workflows/"+made[0]+"/abort", `{"why":"x"}`).issues("body.why")
	w.post("/v1/workflows/"+made[0]+"/abort", contract.Reason{Reason: strings.Repeat("x", 513)}).issues("body.reason")
}

func TestWhoMaySteerWorkflows(t *testing.T) {
	w := start(t)
	mine, theirs := w.estate("acme"), w.estate("globex")
	n := w.enroll(mine.pool)
	path := "/v1/workflows/" + w.runs(n, "metal-enroll").String()
	_, reader := w.caller(mine.tenant, "node", n.ID, "compute:workflows:read", "compute:nodes:read")
	w.get(path, as(reader)).want(200)
	w.get("/v1/nodes/"+n.ID+"/workflows", as(reader)).want(200)
	if p := w.post(path+"/abort", nil, as(reader)).problem(403, "FORBIDDEN"); p.Details["action"] != "compute:workflows:manage" {
		t.Fatalf("%+v", p)
	}
	_, blind := w.caller(mine.tenant, "node", n.ID, "compute:nodes:read")
	for _, token := range []string{blind, theirs.token} {
		w.get(path, as(token)).problem(404, "NOT_FOUND")
		if list := into[contract.List[contract.Workflow]](w.get("/v1/workflows", as(token)).want(200)); len(list.Items) > 0 {
			t.Fatalf("%+v", list)
		}
		for _, verb := range []string{"abort", "retry", "pause", "resume"} {
			if status := w.post(path+"/"+verb, nil, as(token)).status; status != 404 && token == theirs.token {
				t.Fatalf("%s: %d", verb, status)
			}
		}
	}
	w.get("/v1/nodes/"+n.ID+"/workflows", as(theirs.token)).problem(404, "NOT_FOUND")
}

// The feed of one machine has its own events, and those of its workflows and agents; nothing of another's.
func TestFeedOfOneMachine(t *testing.T) {
	w := start(t)
	e := w.estate("acme")
	n, other := w.enroll(e.pool), w.enroll(e.pool)
	live := w.follow(t, "/v1/events?node="+n.ID, as(e.token))
	w.runs(other, "metal-enroll")
	w.post("/v1/nodes/"+other.ID+"/cordon", nil).want(200)
	w.runs(n, "metal-enroll")
	w.ramdisk(n, w.discovery(n).Token)
	w.post("/v1/nodes/"+n.ID+"/cordon", nil).want(200)
	var got []string
	for len(got) == 0 || got[len(got)-1] != "node.cordon.set" {
		ev := live.event()
		if strings.Contains(string(ev.Data), other.ID) || strings.Contains(ev.Subject, other.ID) {
			t.Fatalf("an event of another machine: %+v", ev)
		}
		got = append(got, ev.Type)
	}
	for _, want := range []string{"node.provision.workflow", "workflow.created", "workflow.step.started", "token.minted", "agent.joined", "agent.session.opened"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	w.get("/v1/events?node=x").issues("query.node")
}
