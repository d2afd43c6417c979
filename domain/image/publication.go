package image

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
)

// PublicCategory is the first part of the stream names of publications.
const PublicCategory = "publicimage"

// published separates the names of publications from those of anything else (RFC 9562, section 5.5).
var published = uuid.MustParse("b6a4c2de-8f0b-5e7d-9c55-1d0a5c7e3f42")

// PublicStream names the stream in which a public name@version stands: whoever looks for it finds the one image that has it.
func PublicStream(r Ref) event.Stream {
	return event.StreamOf(PublicCategory, uuid.NewSHA1(published, []byte(r.String())).String())
}

// Publication is the fold of a publication's stream: which image has the public name; a zero one is none.
type Publication struct {
	Image  id.Image  `json:"imageId,omitzero"`
	Tenant id.Tenant `json:"tenantId,omitzero"`
}

// PublicEvent is any event of a publication's stream.
//
//sumtype:decl
type PublicEvent interface {
	event.Event
	publicImageEvent()
}

// PublicEvents is the table of stored names.
var PublicEvents = event.Table(
	event.Of[Published](1, "publicimage.published"),
	event.Of[Unpublished](1, "publicimage.unpublished"),
)

// Published says that an image has the public name from now on.
type Published struct {
	Image   id.Image  `json:"imageId"`
	Tenant  id.Tenant `json:"tenantId"`
	Name    string    `json:"name"`
	Version string    `json:"version"`
}

// Unpublished says that no image has the name any more.
type Unpublished struct {
	Image id.Image `json:"imageId"`
}

// EventType is the stored name.
func (Published) EventType() string { return "publicimage.published" }

// EventType is the stored name.
func (Unpublished) EventType() string { return "publicimage.unpublished" }

func (Published) publicImageEvent()   {}
func (Unpublished) publicImageEvent() {}

// PublicCommand is any verb against a publication.
type PublicCommand interface{ publicImageCommand() }

type (
	// Publish gives the name to an image. The one that has it already changes nothing; another is CONFLICT, unless it is
	// Instead: an image that never appeared, or was withdrawn.
	Publish struct {
		Facts   Published
		Instead id.Image
	}
	// Unpublish takes the name from an image. One that does not have it changes nothing.
	Unpublish struct{ Image id.Image }
)

func (Publish) publicImageCommand()   {}
func (Unpublish) publicImageCommand() {}

// PublicDecider is the aggregate.
var PublicDecider = event.Decider[Publication, PublicCommand, PublicEvent]{Decide: DecidePublic, Evolve: EvolvePublic}

// DecidePublic refuses a name that another image has.
func DecidePublic(p Publication, c PublicCommand) ([]PublicEvent, error) {
	switch c := c.(type) {
	case Publish:
		switch {
		case p.Image == c.Facts.Image:
			return nil, nil
		case !id.IsZero(p.Image) && p.Image != c.Instead:
			return nil, fault.New(fault.Conflict, "another image is public as %s@%s", c.Facts.Name, c.Facts.Version).
				WithDetail("imageId", p.Image.String()).WithRemedy("register it as another version, or not as public")
		}
		return []PublicEvent{c.Facts}, nil
	case Unpublish:
		if p.Image != c.Image {
			return nil, nil
		}
		return []PublicEvent{Unpublished(c)}, nil
	default:
		return nil, fmt.Errorf("image.DecidePublic does not know %T", c)
	}
}

// EvolvePublic folds one event.
func EvolvePublic(_ Publication, e PublicEvent) Publication {
	switch e := e.(type) {
	case Published:
		return Publication{Image: e.Image, Tenant: e.Tenant}
	case Unpublished:
		return Publication{}
	default:
		panic(fmt.Sprintf("image.EvolvePublic does not know %T", e))
	}
}
