package httpapi

import (
	"context"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/profiles"
)

type listProfiles struct {
	Fresh
	Paging
	Tenant string `query:"tenant" doc:"whose; builtin: those that came with the program"`
	ID     string `query:"id" doc:"every version of this profile"`
}

func (a *API) listProfiles(ctx context.Context, in *listProfiles) (*answer, error) {
	f := profiles.Filter{ID: in.ID}
	if in.Tenant != contract.Builtin {
		var wrong issues
		if f.Tenant = narrow[id.Tenant](&wrong, "tenant", in.Tenant); len(wrong) > 0 {
			return nil, wrong.err()
		}
	}
	return listIn(ctx, a, profiles.Name, in.Fresh, in.Paging, func(who *Identity) ([]contract.ProfileDocument, string, error) {
		return narrowed(ctx, a, who, around{tenant: f.Tenant}, principal.ProfilesRead, in.Cursor == "",
			func(s projections.Scope) ([]contract.ProfileDocument, string, error) {
				f.Scope = s
				return a.profilePage(ctx, f, in)
			})
	}, func(p contract.ProfileDocument) contract.ProfileDocument {
		p.Document = nil
		return p
	})
}

// shippedList names the cursors of the part of the list that comes after the stored profiles.
const shippedList = "shippedprofiles"

// profilePage is a page of stored profiles, filled up with shipped ones once there are no more.
func (a *API) profilePage(ctx context.Context, f profiles.Filter, in *listProfiles) ([]contract.ProfileDocument, string, error) {
	size, err := in.page().Size()
	if err != nil || f.Scope.Empty() {
		return nil, "", err
	}
	var list []contract.ProfileDocument
	from, inShipped := a.shippedFrom(in)
	if !inShipped {
		rows, next, err := profiles.List(ctx, a.db, f, in.page())
		if err != nil {
			return nil, "", err
		}
		for _, row := range rows {
			list = append(list, storedProfile(row))
		}
		if next != "" {
			return list, next, nil
		}
	}
	if !id.IsZero(f.Tenant) {
		return list, "", nil
	}
	return a.fillUp(list, size, from, in.ID)
}

// shippedFrom tells from which shipped profile on the page is.
func (a *API) shippedFrom(in *listProfiles) (int, bool) {
	if in.Cursor == "" {
		return 0, in.Tenant == contract.Builtin
	}
	key, err := in.page().After(shippedList, func(key string) bool {
		n, err := strconv.Atoi(key)
		return err == nil && n >= 0
	})
	from, _ := strconv.Atoi(key) // checked above
	return from, err == nil
}

func (a *API) fillUp(list []contract.ProfileDocument, size, from int, only string) ([]contract.ProfileDocument, string, error) {
	at := 0
	for _, doc := range a.service.ShippedProfiles() {
		if only != "" && doc.ID != only {
			continue
		}
		if at++; at <= from {
			continue
		}
		if len(list) == size {
			return list, projections.Cursor(shippedList, strconv.Itoa(at-1)), nil
		}
		shown, err := shippedProfile(doc)
		if err != nil {
			return nil, "", err
		}
		list = append(list, shown)
	}
	return list, "", nil
}
