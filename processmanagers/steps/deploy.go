package steps

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

const (
	actionResolve = "image.resolve"
	actionDeploy  = "deploy.deploy"
)

// ResolveImage is the input of image.resolve.
type ResolveImage struct {
	Image string `json:"image,omitempty" doc:"name@version; left out: the profile's image"`
}

// resolved is the result of image.resolve. None of it is secret: an image is public to whoever may read the workflow.
type resolved struct {
	Image     id.Image `json:"imageId"`
	Name      string   `json:"name"` // name@version
	URL       string   `json:"url"`
	Digest    string   `json:"digest"`
	Format    string   `json:"format"`
	Bytes     int64    `json:"bytes"`
	Signature []byte   `json:"signature,omitempty"`
	Signer    string   `json:"signer,omitempty"`
}

// Deploy is the input of deploy.deploy.
type Deploy struct {
	Disk     agentcommand.RootDisk `json:"disk,omitzero" doc:"hints, all of which it must match"`
	ReadBack bool                  `json:"readBack,omitempty" doc:"read the whole image back from the disk"`
}

// deployed is the result of deploy.deploy.
type deployed struct {
	Image    id.Image `json:"imageId"`
	Disk     string   `json:"disk"`
	Path     string   `json:"path,omitempty"`
	Digest   string   `json:"digest"`
	Bytes    int64    `json:"bytes"`
	ReadBack bool     `json:"readBack"`
}

func deploySteps() []Step {
	return []Step{
		WithPreflight(Define(profile.Spec{
			ID: actionResolve, Timeout: time.Minute,
			Summary: "Finds the image in the catalog of the machine's owner, then among the public ones.",
		}, resolveImage), func(ctx context.Context, c *Context, in ResolveImage) error {
			_, err := c.image(ctx, in)
			return err
		}),
		Define(profile.Spec{
			ID: actionDeploy, Timeout: 2 * time.Hour,
			Relays: []profile.Where{profile.OnRamdisk}, Sends: []string{string(agentcommand.ImageWrite)},
			Summary: "Streams the resolved image to a disk, checks digest and signature, and leaves the user data beside it.",
		}, deploy),
	}
}

func resolveImage(ctx context.Context, c *Context, in ResolveImage) (any, error) {
	found, err := c.image(ctx, in)
	if err != nil {
		return nil, err
	}
	return resolved{
		Image: found.ID, Name: found.Name, URL: found.URL, Digest: found.Digest, Format: found.Format, Bytes: found.Bytes,
		Signature: found.Signature, Signer: found.Signer,
	}, nil
}

// image finds the image that is meant in the catalog.
func (c *Context) image(ctx context.Context, in ResolveImage) (Image, error) {
	ref := in.Image
	if ref == "" {
		ref = c.Profile.Image
	}
	switch {
	case ref == "":
		return Image{}, fault.New(fault.InvalidConfig, "neither the step nor the profile names an image").WithDetail("path", "image")
	case c.Ports.Images == nil:
		return Image{}, c.lacks("images")
	}
	return c.Ports.Images.Resolve(ctx, c.Node.Tenant, ref)
}

func deploy(ctx context.Context, c *Context, in Deploy) (any, error) {
	if c.Node.Provision != node.Deploying {
		return nil, c.keepsDisks()
	}
	image, found, err := earlier[resolved](c, actionResolve)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fault.New(fault.InvalidConfig, "%s needs the image that an earlier %s found", actionDeploy, actionResolve).
			WithDetail("path", "steps")
	}
	data, err := c.userData()
	if err != nil {
		return nil, err
	}
	done, err := c.AwaitCommand(ctx, Order{
		Kind: agentcommand.ImageWrite, Role: agentcommand.RoleRamdisk,
		Make: func() (any, error) {
			data, err := c.freshUserData(ctx, data)
			return agentcommand.WriteImage{
				URL: image.URL, Digest: image.Digest, Format: image.Format, Bytes: image.Bytes,
				Signature: image.Signature, Signer: image.Signer, Disk: in.Disk, ReadBack: in.ReadBack,
				UserDataRef: string(data.Ref), UserData: data.Kind, Hostname: hostname(c.Node.ID),
			}, err
		},
	})
	if err != nil {
		return nil, err
	}
	return c.written(image, in, done)
}

// userData is the document that userdata.render left; a profile that names none has none.
func (c *Context) userData() (rendered, error) {
	data, found, err := earlier[rendered](c, actionRender)
	if err == nil && !found && c.Profile.UserData != nil {
		return data, fault.New(fault.InvalidConfig, "the profile has user data, and no %s before %s", actionRender, actionDeploy).
			WithDetail("path", "steps")
	}
	return data, err
}

// written believes a result that the machine signed, and that tells of the image that was asked for.
func (c *Context) written(image resolved, in Deploy, done Awaited) (any, error) {
	var told agentcommand.WrittenImage
	if err := json.Unmarshal(done.Result, &told); err != nil {
		return nil, badAnswer(err, actionDeploy)
	}
	switch {
	case !done.Attested:
		return nil, c.unsigned(done)
	case !strings.EqualFold(told.Digest, image.Digest):
		return nil, fault.New(fault.DriverError, "another image was written than the one that was asked for").
			WithDetail("reason", "digest-differs").WithDetail("wanted", image.Digest).WithDetail("found", told.Digest)
	case in.ReadBack && !told.ReadBack:
		return nil, fault.New(fault.DriverError, "the image was not read back from the disk").WithDetail("reason", "not-read-back")
	}
	return deployed{
		Image: image.Image, Disk: told.Disk, Path: told.Path, Digest: told.Digest, Bytes: told.Bytes, ReadBack: told.ReadBack,
	}, nil
}

// hostname is what the installed OS is called: the node's id, with what host names may not have replaced.
func hostname(n id.Node) string { return strings.ReplaceAll(n.String(), "_", "-") }
