package commands

import (
	"context"

	"github.com/better-compute/metal/domain/event"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/image"
	"github.com/better-compute/metal/domain/principal"
	"github.com/better-compute/metal/domain/tenant"
)

// ImageOutcome is what a verb did to an image.
type ImageOutcome = Outcome[image.State]

// NewImage is a version of an image to be registered.
type NewImage struct {
	Tenant    id.Tenant
	Name      string
	Version   string
	Digest    string // sha256:<hex> of the file as served
	Bytes     int64
	Format    string
	URL       string
	Signature []byte
	Public    bool // every tenant may deploy it; decided on the root tenant as well
}

// RegisterImage adds a version of an image to a tenant's catalog, once one of the tenant's signers is found whose key verifies
// the signature: INVALID_INPUT where none does. The same facts again change nothing; others under the same name and version,
// and a second public image of them, are CONFLICT.
func (s *Service) RegisterImage(ctx context.Context, call Call, in NewImage) (ImageOutcome, error) {
	if err := s.auth.Allow(call.Actor, principal.ImagesWrite, tenantResource(in.Tenant)); err != nil {
		return ImageOutcome{}, err
	}
	if in.Public {
		if err := s.auth.Allow(call.Actor, principal.ImagesWrite, tenantResource(tenant.Root)); err != nil {
			return ImageOutcome{}, fault.New(fault.Forbidden, "an image that every tenant sees is the root tenant's to register").
				WithDetail("action", string(principal.ImagesWrite)).WithRemedy("register it without public")
		}
	}
	facts, err := s.verified(ctx, in)
	if err != nil {
		return ImageOutcome{}, err
	}
	if in.Public {
		if err := s.publish(ctx, call, facts); err != nil {
			return ImageOutcome{}, err
		}
	}
	return s.onImage(ctx, call, facts.Image, image.Register{Facts: facts})
}

// verified gives the facts with the signer that vouches for them.
func (s *Service) verified(ctx context.Context, in NewImage) (image.Facts, error) {
	ref := image.Ref{Name: in.Name, Version: in.Version}
	facts := image.Facts{
		Image: image.Of(in.Tenant, ref), Tenant: in.Tenant, Name: in.Name, Version: in.Version, Digest: in.Digest,
		Bytes: in.Bytes, Format: in.Format, URL: in.URL, Signature: in.Signature, Public: in.Public,
	}
	if err := image.Check(facts); err != nil {
		return facts, err
	}
	owner, err := load(ctx, s, tenant.Decider, tenant.StreamOf(in.Tenant))
	switch {
	case err != nil:
		return facts, err
	case !owner.state.Exists():
		return facts, fault.New(fault.NotFound, "there is no tenant %s", in.Tenant)
	}
	for _, signer := range owner.state.Policy.ImageSigners {
		if image.Verify(facts.Digest, facts.Signature, signer.PublicKey) {
			facts.Signer, facts.SignerKey = signer.Name, signer.PublicKey
			return facts, nil
		}
	}
	return facts, fault.Invalid(fault.Issue{Path: "body.signature", Message: "no key of the tenant's image signers made it"}).
		WithDetail("signers", len(owner.state.Policy.ImageSigners)).
		WithRemedy("add the signer to the tenant's policy, or sign the 32 bytes of the digest with a key that is in it")
}

// publish takes the public name. A holder that was withdrawn, or did not appear within ClaimGrace, has lost it. A crash before
// the image is registered leaves a name whose image does not exist: the same request goes on, another takes the name over.
func (s *Service) publish(ctx context.Context, call Call, facts image.Facts) error {
	own, err := load(ctx, s, image.Decider, image.StreamOf(facts.Image))
	if err != nil {
		return err
	}
	if own.state.Exists() { // what is refused must not take a name
		if _, err := image.Decide(own.state, image.Register{Facts: facts}); err != nil {
			return err
		}
	}
	take := image.Publish{Facts: image.Published{
		Image: facts.Image, Tenant: facts.Tenant, Name: facts.Name, Version: facts.Version,
	}}
	has, err := load(ctx, s, image.PublicDecider, image.PublicStream(facts.Ref()))
	if err != nil {
		return err
	}
	if holder := has.state.Image; !id.IsZero(holder) {
		held, err := load(ctx, s, image.Decider, image.StreamOf(holder))
		switch {
		case err != nil:
			return err
		case held.state.Withdrawn, !held.state.Exists() && s.clock().Sub(has.at) > ClaimGrace:
			take.Instead = holder
		}
	}
	return s.onPublication(ctx, call, facts.Ref(), facts.Tenant, take)
}

// WithdrawImage takes an image out of use: it is not found any more. Machines that run it stay.
func (s *Service) WithdrawImage(ctx context.Context, call Call, i id.Image, reason string) (ImageOutcome, error) {
	done, err := s.onImage(ctx, call, i, image.Withdraw{Reason: reason})
	if err != nil || !done.State.Public {
		return done, err
	}
	return done, s.onPublication(ctx, call, done.State.Ref(), done.State.Tenant, image.Unpublish{Image: i})
}

// ResolveImage finds what name@version means for a tenant: its own image, else the public one. Errors: NOT_FOUND where there
// is none or it was withdrawn, INVALID_INPUT.
func (s *Service) ResolveImage(ctx context.Context, t id.Tenant, text string) (image.State, error) {
	ref, err := image.ParseRef("image", text)
	if err != nil {
		return image.State{}, err
	}
	own, err := load(ctx, s, image.Decider, image.StreamOf(image.Of(t, ref)))
	if err != nil || own.state.Available() {
		return own.state, err
	}
	public, err := load(ctx, s, image.PublicDecider, image.PublicStream(ref))
	if err != nil {
		return image.State{}, err
	}
	if !id.IsZero(public.state.Image) {
		found, err := load(ctx, s, image.Decider, image.StreamOf(public.state.Image))
		if err != nil || found.state.Available() {
			return found.state, err
		}
	}
	return image.State{}, fault.New(fault.NotFound, "there is no image %s", ref).
		WithRemedy("register it, or name one that is in the catalog")
}

func (s *Service) onImage(ctx context.Context, call Call, i id.Image, c image.Command) (ImageOutcome, error) {
	return handle(ctx, s, call, request[image.State, image.Command, image.Event]{
		decider: image.Decider,
		stream:  image.StreamOf(i),
		authorize: func(state image.State) error {
			if _, registering := c.(image.Register); registering {
				return nil // decided on the tenant
			}
			if !state.Exists() {
				return noImage(i)
			}
			err := s.auth.Allow(call.Actor, principal.ImagesWrite, tenantResource(state.Tenant))
			if fault.CodeOf(err) == fault.NotFound {
				return noImage(i)
			}
			return err
		},
		decide: func(image.State, event.Version) (image.Command, error) { return c, nil },
		meta: func(state image.State) event.Meta {
			return event.Meta{Tenant: state.Tenant.String(), Subject: "image/" + state.Image.String()}
		},
	})
}

func noImage(i id.Image) error { return fault.New(fault.NotFound, "there is no image %s", i) }

// onPublication applies a verb to a public name, under a command of its own: a publication says by itself whether a repeat
// changes anything.
func (s *Service) onPublication(ctx context.Context, call Call, ref image.Ref, t id.Tenant, c image.PublicCommand) error {
	call.IfMatch, call.Command = nil, freshCommand()
	_, err := handle(ctx, s, call, request[image.Publication, image.PublicCommand, image.PublicEvent]{
		decider:   image.PublicDecider,
		stream:    image.PublicStream(ref),
		authorize: func(image.Publication) error { return nil }, // decided on the image
		decide:    func(image.Publication, event.Version) (image.PublicCommand, error) { return c, nil },
		meta: func(image.Publication) event.Meta {
			return event.Meta{Tenant: t.String(), Subject: "image/" + ref.String()}
		},
	})
	return err
}
