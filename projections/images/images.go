// Package images is the catalog of OS images as callers see it.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "images"

// Public is the audience of an image that every tenant sees.
const Public = "public"

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
	Audience           string         `json:"audience"` // the tenant, or Public
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
	touched := make([]string, len(batch))
	for i, e := range batch {
		touched[i] = e.Stream.ID()
	}
	rows, err := images.Load(ctx, tx, touched)
	if err != nil {
		return err
	}
	for _, e := range batch {
		rows[e.Stream.ID()] = rows[e.Stream.ID()].with(e)
	}
	for key, row := range rows {
		if row == nil { // of a stream whose first event this program does not know
			delete(rows, key)
		}
	}
	return images.Save(ctx, tx, rows)
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
		row.Audience = Public
	}
	return row
}

// Place says whose the image is; one that is Public is everybody's to see.
func (i Image) Place() projections.Place { return projections.Place{Tenant: i.Tenant} }

// Public reports whether every tenant sees the image.
func (i Image) Public() bool { return i.Audience == Public }

// Get reads one image. Errors: NOT_FOUND.
func Get(ctx context.Context, db projections.DB, i id.Image) (Image, error) {
	var raw []byte
	err := db.QueryRow(ctx, `SELECT to_json(i) FROM images i WHERE image_id = $1`, i.String()).Scan(&raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return Image{}, fault.New(fault.NotFound, "there is no image %s", i)
	}
	if err != nil {
		return Image{}, fmt.Errorf("read image %s: %w", i, err)
	}
	var row Image
	return row, json.Unmarshal(raw, &row)
}

// Filter bounds a list. Every field that is set must match.
type Filter struct {
	Scope     projections.Scope // what the caller may see, besides public images; an empty one sees nothing
	Tenant    id.Tenant         // whose
	Name      string
	Withdrawn bool // these too
}

// List reads one page, newest first, and the cursor of the next, empty after the last. Errors: INVALID_INPUT for a bad limit
// or cursor.
func List(ctx context.Context, db projections.DB, f Filter, p projections.Page) ([]Image, string, error) {
	size, err := p.Size()
	if err != nil {
		return nil, "", err
	}
	after, err := p.After(Name, func(key string) bool {
		_, err := strconv.ParseInt(key, 10, 64)
		return err == nil
	})
	if err != nil || f.Scope.Empty() {
		return nil, "", err
	}
	w := f.where()
	if after != "" {
		w.Add("registered_position < {}::bigint", after)
	}
	rows, err := db.Query(ctx, `SELECT to_json(i) FROM images i`+w.SQL()+` ORDER BY registered_position DESC LIMIT `+w.Arg(size+1),
		w.Args()...)
	if err != nil {
		return nil, "", fmt.Errorf("list images: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (i Image, err error) { return i, r.Scan(&i) })
	if err != nil {
		return nil, "", fmt.Errorf("list images: %w", err)
	}
	if len(list) <= size {
		return list, "", nil
	}
	return list[:size], projections.Cursor(Name, strconv.FormatUint(uint64(list[size-1].RegisteredPosition), 10)), nil
}

func (f Filter) where() *projections.Where {
	w, scope := &projections.Where{}, f.Scope
	scope.Tenants = append(slices.Clip(scope.Tenants), Public)
	w.Within(scope, projections.Place{Tenant: "audience"})
	if !id.IsZero(f.Tenant) {
		w.Add("tenant_id = {}", f.Tenant.String())
	}
	if f.Name != "" {
		w.Add("name = {}", f.Name)
	}
	if !f.Withdrawn {
		w.Add("withdrawn = {}", false)
	}
	return w
}
