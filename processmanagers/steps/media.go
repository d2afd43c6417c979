package steps

import (
	"context"
	"net/url"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

const (
	actionInsert = "media.insert"
	actionEject  = "media.eject"
)

// InsertMedia is the input of media.insert.
type InsertMedia struct {
	URL      string `json:"url,omitempty" doc:"of the image"`
	FromStep string `json:"fromStep,omitempty" doc:"the action of an earlier step whose result holds the url"`
}

// Check wants one of the two.
func (i *InsertMedia) Check() []fault.Issue {
	if (i.URL == "") == (i.FromStep == "") {
		return []fault.Issue{{Path: "url", Message: "either this or fromStep is needed"}}
	}
	if i.URL != "" && !isHTTP(i.URL) {
		return []fault.Issue{{Path: "url", Message: "is not an absolute http or https URL"}}
	}
	return nil
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// mediaURL is what media.insert asks of the driver, and reads of an earlier step.
type mediaURL struct {
	URL string `json:"url"`
}

type medium struct {
	Slot     string `json:"slot,omitempty"`
	Image    string `json:"image,omitempty"`
	Inserted bool   `json:"inserted"`
}

type ejected struct {
	PoweredOff bool `json:"poweredOff"`
}

func mediaSteps() []Step {
	return []Step{
		Define(relaying(actionInsert, "Inserts virtual media through the BMC.", 10*time.Minute), insertMedia),
		Define(relaying(actionEject, "Ejects virtual media; a ramdisk that may run from it is switched off first.",
			10*time.Minute), ejectMedia),
	}
}

func insertMedia(ctx context.Context, c *Context, in InsertMedia) (any, error) {
	with := mediaURL{URL: in.URL}
	if in.FromStep != "" {
		from, _, err := earlier[mediaURL](c, in.FromStep)
		switch {
		case err != nil:
			return nil, err
		case !isHTTP(from.URL):
			return nil, fault.New(fault.InvalidConfig, "no succeeded step %s of this workflow has a url in its result", in.FromStep).
				WithDetail("path", "fromStep")
		}
		with = from
	}
	m, _, err := invoke[medium](ctx, c, operation{concern: "virtual-media", verb: "insert", with: with})
	return m, err
}

// ejectMedia takes the root of a running ramdisk away only once the machine is off. An installed OS goes on running.
func ejectMedia(ctx context.Context, c *Context, _ None) (any, error) {
	if c.Ports.Commands == nil {
		return nil, c.lacks("commands")
	}
	begun, err := c.Ports.Commands.Find(ctx, c.CommandKey("power-off"))
	if err != nil {
		return nil, err
	}
	off := begun.Exists()
	if !off {
		now, err := c.session(ctx)
		if err != nil {
			return nil, err
		}
		off = now.Connected && now.Role == agentcommand.RoleRamdisk
	}
	if off {
		if _, _, err := c.power(ctx, Power{Action: node.ActionOff}, "power-off", 0); err != nil {
			return nil, err
		}
	}
	_, _, err = c.drive(ctx, operation{concern: "virtual-media", verb: "eject", name: "eject"})
	return ejected{PoweredOff: off}, err
}
