package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/profile"
)

// mayTry refuses who may read no profiles at all.
func mayTry(ctx context.Context) error {
	if !requestOf(ctx).who.Scope(principal.ProfilesRead).Empty() {
		return nil
	}
	return fault.New(fault.Forbidden, "the credential does not allow %s anywhere", principal.ProfilesRead).
		WithDetail("action", string(principal.ProfilesRead))
}

type tries struct {
	Keyed
	Body contract.TryProfile
}

func (a *API) validateProfile(ctx context.Context, in *tries) (*answer, error) {
	if err := mayTry(ctx); err != nil {
		return nil, err
	}
	found := a.service.ProfileIssues(in.Body.Profile, in.Body.HardwareProfile)
	out := contract.Verdict{Valid: len(found) == 0, Issues: []contract.Issue{}}
	for _, i := range found {
		out.Issues = append(out.Issues, contract.Issue{Path: i.Path, Message: i.Message})
	}
	body, err := encode(out)
	return &answer{Body: body}, err
}

func (a *API) renderProfile(ctx context.Context, in *tries) (*answer, error) {
	if err := mayTry(ctx); err != nil {
		return nil, err
	}
	doc, err := profile.Parse(in.Body.Profile)
	if err != nil {
		return nil, err
	}
	steps, found := a.service.RenderProfile(doc, in.Body.HardwareProfile)
	if len(found) > 0 {
		return nil, profile.Refuse(found...)
	}
	out := contract.Rendered{ID: doc.ID, ProfileVersion: doc.Version, Steps: []contract.RenderedStep{}}
	for _, s := range steps {
		out.Steps = append(out.Steps, renderedStep(s))
	}
	body, err := encode(out)
	return &answer{Body: body}, err
}

func renderedStep(s profile.Resolved) contract.RenderedStep {
	return contract.RenderedStep{
		ID: s.ID, Phase: string(s.Phase), Action: s.Action, RunsOn: string(s.RunsOn), Driver: s.Driver, Command: s.Command, Sends: s.Sends,
		With: s.With, When: s.When, Timeout: length(s.Timeout), Retries: s.Retries, RetryDelay: delay(s.RetryDelay),
		OnFailure: string(s.Policy), OnFailureStep: s.OnFailureStep, ArmedBy: s.ArmedBy, Rejoin: s.Rejoin, Needs: s.Needs,
	}
}

// length writes a length of time as profiles do.
func length(d time.Duration) string { return profile.Duration(d).String() }

// delay is length; empty for none.
func delay(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return length(d)
}

func (a *API) stepOperations() {
	operate(a, document{
		id: "list-steps", method: http.MethodGet, path: "/v1/steps", tag: "profiles",
		summary: "List the steps that profiles may use, by name", gives: pageOf[contract.StepInfo](),
		more: "They are of the program, the same for every caller.",
	}, a.listSteps)
}

type listSteps struct{ Paging }

func (a *API) listSteps(_ context.Context, in *listSteps) (*answer, error) {
	list, next, err := slice("steps", a.steps, in.page())
	if err != nil {
		return nil, err
	}
	items, err := encodeAll(list, stepInfo)
	if err != nil {
		return nil, err
	}
	body, err := a.page(0, items, next, in.Fields, fieldsOf(reflect.TypeFor[contract.StepInfo]()))
	if err != nil {
		return nil, err
	}
	body.Position = "" // of no read model
	return body, nil
}

func stepInfo(s profile.Spec) contract.StepInfo {
	out := contract.StepInfo{
		ID: s.ID, RunsOn: string(s.RunsOn), Timeout: length(s.Timeout), Retries: s.Retries, RetryDelay: delay(s.RetryDelay),
		Sends: s.Sends, Rejoin: s.Rejoin, Brings: string(s.Brings), Input: s.Input, Summary: s.Summary,
	}
	if s.Command != "" {
		out.Sends = []string{s.Command}
	}
	for _, r := range s.Relays {
		out.Relays = append(out.Relays, string(r))
	}
	if s.Cleanup != nil {
		out.Cleanup = s.Cleanup.Use
	}
	return out
}
