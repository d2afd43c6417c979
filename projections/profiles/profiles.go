// Package profiles is the stored profiles as callers see them: one row per version. The shipped ones are in no log.
package profiles

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/profile"
	"github.com/better-compute/metal/projections"
)

// Name is the projection's name, to wait for it.
const Name = "profiles"

// New is the projection. Who holds a public name is not looked at: a version that says that it is public has it.
func New() projections.Projection {
	return projections.Projection{
		Name: Name, Version: 1, Pace: 100 * time.Millisecond,
		Consumes: []string{profile.Created{}.EventType(), profile.Replaced{}.EventType(), profile.Used{}.EventType()},
		Tables:   []string{"profiles"}, Apply: apply,
	}
}

var profiles = projections.NewTable[Profile]("profiles", "profile_key")

// Profile is one row.
type Profile struct {
	Key            string         `json:"profile_key"`
	Tenant         string         `json:"tenant_id"`
	Audience       string         `json:"audience"` // the tenant, or projections.Public
	ID             string         `json:"profile_id"`
	ProfileVersion int            `json:"profile_version"`
	Target         string         `json:"target"`
	Description    string         `json:"description"`
	Digest         string         `json:"digest"`
	Used           bool           `json:"used"`
	CreatedAt      time.Time      `json:"created_at"`
	Created        event.Position `json:"created_position"`
	Version        event.Version  `json:"version"` // of the aggregate
	Position       event.Position `json:"position"`
	UpdatedAt      time.Time      `json:"updated_at"`
	Document       string         `json:"document"`
}

// Public reports whether every tenant finds the profile.
func (p Profile) Public() bool { return p.Audience == projections.Public }

// Place says whose the profile is; one that is Public is everybody's to see.
func (p Profile) Place() projections.Place { return projections.Place{Tenant: p.Tenant} }

func apply(ctx context.Context, tx pgx.Tx, batch []event.Recorded) error {
	return profiles.Fold(ctx, tx, batch, (*Profile).with)
}

// with is the row after an event; one that the row holds already changes nothing.
func (p *Profile) with(e event.Recorded) *Profile {
	created, first := e.Event.(profile.Created)
	switch {
	case p == nil && first:
		p = &Profile{Key: e.Stream.ID(), Tenant: created.Tenant.String(), CreatedAt: e.Meta.At, Created: e.Position}
	case p == nil || e.Version <= p.Version:
		return p
	}
	row := *p
	row.Version, row.Position, row.UpdatedAt = e.Version, e.Position, e.Meta.At
	switch e := e.Event.(type) {
	case profile.Created:
		row.take(e.Document, e.Digest)
	case profile.Replaced:
		row.take(e.Document, e.Digest)
	case profile.Used:
		row.Used = true
	}
	return &row
}

// take fills the columns with a document.
func (p *Profile) take(doc profile.Document, digest string) {
	p.ID, p.ProfileVersion, p.Target = projections.Text(doc.ID), doc.Version, projections.Text(string(doc.Target))
	p.Description, p.Digest, p.Document = projections.Text(doc.Description), digest, projections.JSON(doc)
	p.Audience = p.Tenant
	if doc.Public {
		p.Audience = projections.Public
	}
}
