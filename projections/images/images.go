// Package images is the catalog of OS images as callers see it.
package images

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "images"

// New is the projection.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 100 * time.Millisecond, Consumes: projections.Types(image.Events),
		Tables: []string{"images"}, Apply: apply,
	}
}

var images = projections.NewTable[Image]("images", "image_id")

// Image is one row.
type Image struct {
	ID                 string         `json:"image_id"`
	Tenant             string         `json:"tenant_id"`
	Audience           string         `json:"audience"` // the tenant, or projections.Public
	Name               string         `json:"name"`
	ImageVersion       string         `json:"image_version"`
	Digest             string         `json:"digest"`
	Bytes              int64          `json:"bytes"`
	Format             string         `json:"format"`
	URL                string         `json:"url"`
	Signer             string         `json:"signer"`
	Withdrawn          bool           `json:"withdrawn"`
	Reason             string         `json:"reason"` // of the withdrawal
	RegisteredAt       time.Time      `json:"registered_at"`
	RegisteredPosition event.Position `json:"registered_position"`
	Version            event.Version  `json:"version"` // of the aggregate
	Position           event.Position `json:"position"`
	UpdatedAt          time.Time      `json:"updated_at"`
}

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	return images.Fold(ctx, tx, batch, (*Image).with)
}

// with is the row after an event; one that the row holds already changes nothing.
func (i *Image) with(e event.Recorded) *Image {
	registered, first := e.Event.(image.Registered)
	switch {
	case i == nil && first:
		i = registeredRow(registered, e)
	case i == nil || e.Version <= i.Version:
		return i
	}
	row := *i
	row.Version, row.Position, row.UpdatedAt = e.Version, e.Position, e.Meta.At
	if gone, ok := e.Event.(image.Withdrawn); ok {
		row.Withdrawn, row.Reason = true, projections.Text(gone.Reason)
	}
	return &row
}

func registeredRow(r image.Registered, e event.Recorded) *Image {
	row := &Image{
		ID: e.Stream.ID(), Tenant: r.Tenant.String(), Audience: r.Tenant.String(), Name: r.Name, ImageVersion: r.Version,
		Digest: r.Digest, Bytes: r.Bytes, Format: r.Format, URL: projections.Text(r.URL), Signer: projections.Text(r.Signer),
		RegisteredAt: e.Meta.At, RegisteredPosition: e.Position,
	}
	if r.Public {
		row.Audience = projections.Public
	}
	return row
}

// Place says whose the image is; one that is Public is everybody's to see.
func (i Image) Place() projections.Place { return projections.Place{Tenant: i.Tenant} }

// Public reports whether every tenant sees the image.
func (i Image) Public() bool { return i.Audience == projections.Public }

// Get reads one image. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, i id.Image) (Image, error) {
	return projections.One[Image](ctx, db, "image "+i.String(), `SELECT to_json(i) FROM images i WHERE image_id = $1`, i.String())
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope     projections.Scope // what the caller may see, besides public images; an empty one sees nothing
	Tenant    id.Tenant         // whose
	Name      string
	Withdrawn bool // these too
}

var list = projections.List[Image]{
	Name: Name, From: `SELECT to_json(i) FROM images i`, Key: "registered_position", Valid: projections.ValidPosition,
	Scan: projections.ScanJSON[Image], KeyOf: func(i Image) string { return i.RegisteredPosition.String() },
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Image, string, error) {
	w := &projections.Where{}
	w.Within(f.Scope.OrPublic(), projections.Place{Tenant: "audience"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if f.Name != "" {
		w.Add("name = {}", f.Name)
	}
	if !f.Withdrawn {
		w.Add("withdrawn = {}", false)
	}
	return list.Page(ctx, db, w, p)
}
