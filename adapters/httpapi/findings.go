package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/doctor"
)

func (a *API) findings() {
	operate(a, document{
		id: "list-findings", method: http.MethodGet, path: "/v1/doctor", tag: "doctor",
		summary: "List what needs somebody's attention", gives: pageOf[contract.Finding](),
		more: "Findings about machines are those the caller may read; others need compute:nodes:read on the root tenant.",
	}, a.listFindings)
}

type listFindings struct {
	Fresh
	Paging
}

func (a *API) listFindings(ctx context.Context, in *listFindings) (*answer, error) {
	if err := a.current(ctx, doctor.Name, in.Fresh); err != nil {
		return nil, err
	}
	reached := a.waiter.Position(doctor.Name)
	statuses, err := a.waiter.Status(ctx)
	if err != nil {
		return nil, readFault(err)
	}
	found, err := doctor.Findings(ctx, a.db, doctor.Input{
		Scope: requestOf(ctx).who.Scope(principal.NodesRead), Now: a.clock(), Statuses: statuses,
	})
	if err != nil {
		return nil, readFault(err)
	}
	found, next, err := slice(findingsList, found, in.page())
	if err != nil {
		return nil, err
	}
	items, err := encodeAll(found, findingOf)
	if err != nil {
		return nil, err
	}
	return a.page(reached, items, next, in.Fields, fieldsOf(reflect.TypeFor[contract.Finding]()))
}

const findingsList = "findings"

// slice pages a list that is made afresh for each page: the cursor is how many items went before.
func slice[T any](name string, list []T, p projections.Page) ([]T, string, error) {
	size, err := p.Size()
	if err != nil {
		return nil, "", err
	}
	after, err := p.After(name, func(key string) bool {
		n, err := strconv.Atoi(key)
		return err == nil && n >= 0
	})
	if err != nil {
		return nil, "", err
	}
	skipped, _ := strconv.Atoi(after) // checked above; empty is zero
	list = list[min(skipped, len(list)):]
	if len(list) <= size {
		return list, "", nil
	}
	return list[:size], projections.Cursor(name, strconv.Itoa(skipped+size)), nil
}

func findingOf(f doctor.Finding) contract.Finding {
	return contract.Finding{
		Code: string(f.Code), Severity: string(f.Severity), Subject: f.Subject, Tenant: f.Tenant, Since: f.Since.UTC(),
		Message: f.Message, Remedy: f.Remedy, Details: f.Details,
	}
}
