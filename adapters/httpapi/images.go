package httpapi

import (
	"context"
	"net/http"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/commands"
	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/projections"
	"github.com/better-compute/metal/projections/images"
)

func (a *API) imageOperations() {
	operate(a, document{
		id: "register-image", method: http.MethodPost, path: "/v1/images", tag: "images", status: http.StatusCreated, late: true,
		summary: "Add a version of an image to a tenant's catalog", gives: oneOf[contract.Image](),
		more: "The signature must be of a key in the tenant's policy. The same again changes nothing; other facts are CONFLICT.",
	}, a.registerImage)
	operate(a, document{
		id: "list-images", method: http.MethodGet, path: "/v1/images", tag: "images",
		summary: "List images, newest first: the tenants' own and the public ones", gives: pageOf[contract.Image](),
	}, a.listImages)
	operate(a, document{
		id: "get-image", method: http.MethodGet, path: "/v1/images/{id}", tag: "images",
		summary: "Read an image", gives: oneOf[contract.Image](),
	}, a.getImage)
	operate(a, document{
		id: "withdraw-image", method: http.MethodPost, path: "/v1/images/{id}/withdraw", tag: "images", late: true,
		summary: "Take an image out of use, for good; machines that run it stay", gives: oneOf[contract.Image](),
	}, a.withdrawImage)
}

func (a *API) registerImage(ctx context.Context, in *creates[contract.NewImage]) (*answer, error) {
	t, err := idAt[id.Tenant]("body.tenantId", in.Body.Tenant)
	if err != nil {
		return nil, err
	}
	b := in.Body
	done, err := a.service.RegisterImage(ctx, creation(ctx), commands.NewImage{
		Tenant: t, Name: b.Name, Version: b.Version, Digest: b.Digest, Bytes: b.Bytes, Format: b.Format, URL: b.URL,
		Signature: b.Signature, Public: b.Public,
	})
	if err != nil {
		return nil, err
	}
	out, err := a.imageDone(ctx, done)
	return located(out, "/v1/images/"+done.State.Image.String(), err)
}

func (a *API) withdrawImage(ctx context.Context, in *takes[contract.Reason]) (*answer, error) {
	i, call, err := target[id.Image](ctx, in.ID, in.Matching)
	if err != nil {
		return nil, err
	}
	var reason string
	if in.Body != nil {
		reason = in.Body.Reason
	}
	done, err := a.service.WithdrawImage(ctx, call, i, reason)
	if err != nil {
		return nil, err
	}
	return a.imageDone(ctx, done)
}

// imageDone is the answer to a verb. When the image was registered is what the read model knows, if it has caught up.
func (a *API) imageDone(ctx context.Context, done commands.ImageOutcome) (*answer, error) {
	s := done.State
	row := images.Image{
		ID: s.Image.String(), Tenant: s.Tenant.String(), Audience: s.Tenant.String(), Name: s.Name, ImageVersion: s.Facts.Version,
		Digest: s.Digest, Bytes: s.Bytes, Format: s.Format, URL: s.URL, Signer: s.Signer, Withdrawn: s.Withdrawn, Reason: s.Reason,
		RegisteredAt: done.At, Version: done.Version, Position: done.Position, UpdatedAt: done.At,
	}
	if s.Public {
		row.Audience = projections.Public
	}
	if done.Version > 1 {
		a.settled(ctx, images.Name, done.Position)
		if known, err := images.Get(ctx, a.db, s.Image); err == nil {
			row.RegisteredAt = known.RegisteredAt
		}
	}
	return a.done(ctx, images.Name, done.Version, done.Position, imageOf(row))
}

type listImages struct {
	Fresh
	Paging
	Tenant    string `query:"tenant"`
	Name      string `query:"name" doc:"every version of this image"`
	Withdrawn string `query:"withdrawn" enum:"true,false" doc:"true: the withdrawn ones too"`
}

func (a *API) listImages(ctx context.Context, in *listImages) (*answer, error) {
	var wrong issues
	f := images.Filter{Tenant: narrow[id.Tenant](&wrong, "tenant", in.Tenant), Name: in.Name, Withdrawn: in.Withdrawn == "true"}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	return listIn(ctx, a, images.Name, in.Fresh, in.Paging, func(who *Identity) ([]images.Image, string, error) {
		return narrowed(ctx, a, who, around{tenant: f.Tenant}, principal.ImagesRead, in.Cursor == "",
			func(s projections.Scope) ([]images.Image, string, error) {
				f.Scope = s
				return images.List(ctx, a.db, f, in.page())
			})
	}, imageOf)
}

func (a *API) getImage(ctx context.Context, in *one) (*answer, error) {
	i, err := pathID[id.Image](in.ID)
	if err != nil {
		return nil, err
	}
	return singleIn(ctx, a, images.Name, in.Fresh, func(who *Identity) (images.Image, error) {
		found, err := images.Get(ctx, a.db, i)
		scope := who.Scope(principal.ImagesRead)
		if err == nil && !scope.Reaches(found.Place()) && (scope.Empty() || !found.Public()) {
			err = fault.New(fault.NotFound, "there is no image %s", i)
		}
		return found, err
	}, imageOf, func(i images.Image) event.Version { return i.Version })
}

func imageOf(i images.Image) contract.Image {
	return contract.Image{
		ID: i.ID, Tenant: i.Tenant, Public: i.Public(), Name: i.Name, ImageVersion: i.ImageVersion, Digest: i.Digest, Bytes: i.Bytes,
		Format: i.Format, URL: i.URL, Signer: i.Signer, Withdrawn: i.Withdrawn, Reason: i.Reason, RegisteredAt: i.RegisteredAt.UTC(),
		Version: uint64(i.Version), Position: uint64(i.Position), UpdatedAt: i.UpdatedAt.UTC(),
	}
}
