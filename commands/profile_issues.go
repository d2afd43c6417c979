package commands

import (
	"errors"
	"strings"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
	"github.com/better-compute/metal/domain/profile"
)

// ProfileIssues lists everything that is wrong with the text of a profile, by path: what is malformed, what of the rest does
// not resolve on a machine with a hardware profile (empty: all drivers are the default one), inputs that its steps refuse.
func (s *Service) ProfileIssues(text []byte, hardware string) []fault.Issue {
	doc, err := profile.Parse(text)
	var malformed []fault.Issue
	var refused *fault.Error
	if errors.As(err, &refused) {
		malformed = refused.Issues
	}
	bound, err := s.bindings(hardware, node.Drivers[0])
	if err != nil {
		return append(malformed, fault.Issue{Path: "hardwareProfile", Message: err.Error()})
	}
	all := malformed
	_, unresolved := s.resolve(doc, bound)
	for _, i := range unresolved {
		if !follows(i.Path, malformed) {
			all = append(all, i)
		}
	}
	return all
}

// follows tells whether an issue at a path may only be there because of what is malformed: at it, around it, or, for the name
// of a step, in where the step is to run.
func follows(path string, malformed []fault.Issue) bool {
	step, isName := strings.CutSuffix(path, ".use")
	for _, m := range malformed {
		if within(path, m.Path) || isName && m.Path == step+".on" {
			return true
		}
	}
	return false
}

// within tells whether a path is another or leads below it.
func within(path, other string) bool {
	rest, found := strings.CutPrefix(path, other)
	return found && (other == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}
