package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/label"
)

// Concerns is the closed list of what drivers do.
var Concerns = []string{
	"power", "management", "boot", "deploy", "inspect", "virtual-media", "console", "bios", "raid", "firmware", "config",
}

// The bounds of a document.
const (
	maxVersion     = 1_000_000
	maxDescription = 1024
	maxRetries     = 100
	maxTimeout     = Duration(7 * 24 * time.Hour)
	maxRetryDelay  = Duration(24 * time.Hour)
)

var (
	idForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	stepIDForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	useForm    = regexp.MustCompile(`^[a-z][A-Za-z0-9-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9-]{0,62}){0,3}$`)
	imageForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}@[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$`)
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
)

// Check lists everything that is wrong with a document by itself; Resolve finds what does not exist.
func Check(doc Document) []fault.Issue {
	var r reader
	if !idForm.MatchString(doc.ID) {
		r.add("id", "is not 1 to 63 of a-z, 0-9 and ._- between letters or digits")
	}
	if doc.Version < 1 || doc.Version > maxVersion {
		r.add("version", "is not a whole number from 1 to %d", maxVersion)
	}
	if utf8.RuneCountInString(doc.Description) > maxDescription || strings.ContainsFunc(doc.Description, unicode.IsControl) {
		r.add("description", "is longer than %d characters, or holds control characters", maxDescription)
	}
	r.checkTarget(doc)
	if doc.Image != "" && !imageForm.MatchString(doc.Image) {
		r.add("image", "is not of the form name@version")
	}
	for _, concern := range slices.Sorted(maps.Keys(doc.Drivers)) {
		if !slices.Contains(Concerns, concern) {
			r.add("drivers."+cut(concern), "is none of the concerns %s", strings.Join(Concerns, ", "))
		}
		if !nameForm.MatchString(doc.Drivers[concern]) {
			r.add("drivers."+cut(concern), "does not name a driver")
		}
	}
	if u := doc.UserData; u != nil {
		if !nameForm.MatchString(u.Kind) {
			r.add("userData.kind", "is not a name such as cloud-init or ignition")
		}
		if u.Template != "" && !nameForm.MatchString(u.Template) {
			r.add("userData.template", "does not name a template")
		}
	}
	for i, u := range doc.HostConfig {
		r.checkUnit(fmt.Sprintf("hostConfig[%d]", i), u)
	}
	r.checkSteps(doc)
	return r.issues
}

// checkTarget refuses the fields of another target.
func (r *reader) checkTarget(doc Document) {
	refuse := func(given bool, field, why string) {
		if given {
			r.add(field, "%s", why)
		}
	}
	switch doc.Target {
	case TargetMetal:
	case TargetInstance:
		refuse(len(doc.Drivers) > 0, "drivers", "are of target metal")
		refuse(doc.Role != "", "role", "is of target metal")
	case TargetAdopt:
		const why = "is not for target adopt: the machine brings its own OS"
		refuse(doc.Image != "", "image", why)
		refuse(doc.UserData != nil, "userData", why)
		refuse(len(doc.Steps) > 0, "steps", why)
		refuse(len(doc.Cleanup) > 0, "cleanup", why)
	default:
		r.add("target", "is none of metal, instance, adopt")
	}
	if doc.Role != "" && doc.Role != "host" && doc.Role != "dedicated" {
		r.add("role", "is none of host, dedicated")
	}
}

func (r *reader) checkUnit(path string, u ConfigUnit) {
	if !nameForm.MatchString(u.Name) {
		r.add(path+".name", "does not name a unit")
	}
	r.checkObject(path+".settings", u.Settings)
	r.checkWhen(path+".when", u.When)
}

func (r *reader) checkObject(path string, raw json.RawMessage) {
	if len(raw) > 0 && (!json.Valid(raw) || !isObject(raw)) {
		r.add(path, "is not a JSON object")
	}
}

func (r *reader) checkWhen(path, when string) {
	if _, err := label.Parse(when); err != nil {
		r.add(path, "%s", err)
	}
}

func (r *reader) checkSteps(doc Document) {
	ids, count := map[string]string{}, 0
	check := func(path string, s Step, inner bool) {
		count++
		r.checkStep(path, s)
		if s.OnFailure != nil && s.OnFailure.Step != nil && inner {
			r.add(path+".onFailure", "a step that follows a failure or cleans up has none of its own")
		}
		if first, taken := ids[s.ID]; taken && s.ID != "" {
			r.add(path+".id", "is the id of %s too", first)
		} else {
			ids[s.ID] = path
		}
	}
	for i, s := range doc.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		check(path, s, false)
		if s.OnFailure != nil && s.OnFailure.Step != nil {
			check(path+".onFailure", *s.OnFailure.Step, true)
		}
	}
	for i, s := range doc.Cleanup {
		check(fmt.Sprintf("cleanup[%d]", i), s, true)
	}
	if count > MaxSteps {
		r.add("steps", "are %d over all phases; the most is %d", count, MaxSteps)
	}
}

func (r *reader) checkStep(path string, s Step) {
	if !useForm.MatchString(s.Use) {
		r.add(path+".use", "is not a step's id or <concern>.<operation>")
	}
	if s.Fallback != "" && !useForm.MatchString(s.Fallback) {
		r.add(path+".fallback", "is not a step's id or <concern>.<operation>")
	}
	if s.ID != "" && !stepIDForm.MatchString(s.ID) {
		r.add(path+".id", "is not 1 to 63 letters, digits and ._-")
	}
	switch s.On {
	case "", OnControlPlane, OnSite, OnRamdisk, OnNode:
	default:
		r.add(path+".on", "is none of control-plane, site, ramdisk, node")
	}
	r.checkObject(path+".with", s.With)
	r.checkWhen(path+".when", s.When)
	if s.Timeout < 0 || s.Timeout > maxTimeout {
		r.add(path+".timeout", "is longer than %s", maxTimeout)
	}
	if s.Retries < 0 || s.Retries > maxRetries {
		r.add(path+".retries", "is not a whole number from 0 to %d", maxRetries)
	}
	if s.RetryDelay < 0 || s.RetryDelay > maxRetryDelay {
		r.add(path+".retryDelay", "is longer than %s", maxRetryDelay)
	}
	if s.Await != "" && s.Await != awaitRejoin {
		r.add(path+".await", "is not rejoin")
	}
	if s.OnFailure != nil && s.OnFailure.Step == nil {
		switch s.OnFailure.Policy {
		case PolicyFail, PolicyContinue, PolicyRescue:
		default:
			r.add(path+".onFailure", "is none of fail, continue, rescue, or a step")
		}
	}
}

const awaitRejoin = "rejoin"
