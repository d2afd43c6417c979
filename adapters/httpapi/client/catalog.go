package client

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/contract"
)

var (
	opCreateProfile   = post("/v1/profiles")
	opListProfiles    = get("/v1/profiles", "tenant", "id", "limit", "cursor")
	opGetProfile      = get("/v1/profiles/{id}", "version", "tenant")
	opValidateProfile = post("/v1/profiles/validate")
	opRenderProfile   = post("/v1/profiles/render")
	opListSteps       = get("/v1/steps", "limit", "cursor")
	opRegisterImage   = post("/v1/images")
	opListImages      = get("/v1/images", "tenant", "name", "withdrawn", "limit", "cursor")
	opGetImage        = get("/v1/images/{id}")
	opWithdrawImage   = post("/v1/images/{id}/withdraw")
)

// CreateProfile stores a version of a profile. Errors: INVALID_CONFIG with every issue, CONFLICT for a version in use.
func (c *Client) CreateProfile(ctx context.Context, tenant string, document json.RawMessage, o ...Option,
) (contract.ProfileDocument, error) {
	return call[contract.ProfileDocument](ctx, c, opCreateProfile, nil, nil, contract.NewProfile{Tenant: tenant, Profile: document}, o)
}

// Profiles goes through profiles, those that came with the program at the end; empty narrows nothing.
func (c *Client) Profiles(ctx context.Context, tenant, profile string, o ...Option) iter.Seq2[contract.ProfileDocument, error] {
	return pages[contract.ProfileDocument](ctx, c, opListProfiles, nil, given("tenant", tenant, "id", profile), o)
}

// GetProfile reads a version of a profile (0: the newest) as a tenant finds it (empty: the caller's own).
func (c *Client) GetProfile(ctx context.Context, profile string, version int, tenant string, o ...Option,
) (contract.ProfileDocument, error) {
	q := given("tenant", tenant)
	if version > 0 {
		q.Set("version", strconv.Itoa(version))
	}
	return call[contract.ProfileDocument](ctx, c, opGetProfile, []string{profile}, q, nil, o)
}

// ValidateProfile lists everything that is wrong with a profile.
func (c *Client) ValidateProfile(ctx context.Context, in contract.TryProfile, o ...Option) (contract.Verdict, error) {
	return call[contract.Verdict](ctx, c, opValidateProfile, nil, nil, in, o)
}

// RenderProfile gives a profile's steps as a workflow would run them. Errors: INVALID_CONFIG with every issue.
func (c *Client) RenderProfile(ctx context.Context, in contract.TryProfile, o ...Option) (contract.Rendered, error) {
	return call[contract.Rendered](ctx, c, opRenderProfile, nil, nil, in, o)
}

// Steps goes through the steps that profiles may use.
func (c *Client) Steps(ctx context.Context, o ...Option) iter.Seq2[contract.StepInfo, error] {
	return pages[contract.StepInfo](ctx, c, opListSteps, nil, nil, o)
}

// RegisterImage adds a version of an image. Errors: INVALID_INPUT where no signer of the tenant made the signature, CONFLICT.
func (c *Client) RegisterImage(ctx context.Context, in contract.NewImage, o ...Option) (contract.Image, error) {
	return call[contract.Image](ctx, c, opRegisterImage, nil, nil, in, o)
}

// Images goes through images, newest first; empty narrows nothing. Withdrawn ones are left out unless they are asked for.
func (c *Client) Images(ctx context.Context, tenant, name string, withdrawn bool, o ...Option) iter.Seq2[contract.Image, error] {
	q := given("tenant", tenant, "name", name)
	if withdrawn {
		q.Set("withdrawn", "true")
	}
	return pages[contract.Image](ctx, c, opListImages, nil, q, o)
}

// GetImage reads one image.
func (c *Client) GetImage(ctx context.Context, image string, o ...Option) (contract.Image, error) {
	return call[contract.Image](ctx, c, opGetImage, []string{image}, nil, nil, o)
}

// WithdrawImage takes an image out of use, for good. Machines that run it stay.
func (c *Client) WithdrawImage(ctx context.Context, image string, in contract.Reason, o ...Option) (contract.Image, error) {
	return call[contract.Image](ctx, c, opWithdrawImage, []string{image}, nil, in, o)
}
