package disk

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/better-compute/metal/domain/agentcommand"
	"github.com/better-compute/metal/domain/fault"
)

// ChooseRoot finds the disk that an image of at least need bytes goes to: the smallest that matches every hint. Of several
// of one size it is the first by name, so that the same machine gives the same answer also where its next boot finds its disks in
// another order: a second try must not leave the first one's image on another disk. A serial number or WWN that several disks have
// names none of them.
func ChooseRoot(devices []Device, hints agentcommand.RootDisk, need int64) (Device, error) {
	var fit []Device
	seen := map[string]string{}
	for _, d := range devices {
		why := misfit(d.Info(), hints, max(need, hints.MinimumBytes))
		if why == "" {
			fit = append(fit, d)
		}
		seen[d.Info().Path] = cmp.Or(why, "matches")
	}
	if len(fit) == 0 {
		return nil, fault.New(fault.DriverError, "no disk of the machine matches the root disk hints").WithDetail("disks", seen).
			WithRemedy("compare the hints of the deployment with the node's inventory")
	}
	isOther := func(d Device) bool { return d.Info().Key() != fit[0].Info().Key() }
	if hints.Serial+hints.WWN != "" && slices.ContainsFunc(fit, isOther) {
		return nil, fault.New(fault.DriverError, "%d disks of the machine match the root disk hints", len(fit)).WithDetail("disks", seen).
			WithRemedy("give the deployment hints that one disk alone matches, such as its WWN")
	}
	return slices.MinFunc(fit, func(a, b Device) int {
		x, y := a.Info(), b.Info()
		return cmp.Or(cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.Key(), y.Key()), cmp.Compare(x.Path, y.Path))
	}), nil
}

// misfit says why a disk is not the one; nothing: it may be.
func misfit(i Info, hints agentcommand.RootDisk, need int64) string {
	switch why := cmp.Or(i.Reported(), i.unfit()); {
	case why != "":
		return why
	case i.Bytes < need:
		return "it is too small"
	case hints.Serial != "" && !same(i.Serial, hints.Serial):
		return "it has another serial number"
	case hints.WWN != "" && !same(bareWWN(i.WWN), bareWWN(hints.WWN)):
		return "it has another WWN"
	case hints.Model != "" && !contains(i.Model, hints.Model):
		return "it is of another model"
	case hints.Name != "" && !same(path.Base(i.Path), path.Base(hints.Name)):
		return "it has another name"
	case hints.Rotational != nil && *hints.Rotational != i.Rotational:
		return "it is rotational or not, other than wanted"
	}
	return ""
}

// same holds a disk's name against a hint. A disk without a name has not the same as a hint that comes to nothing.
func same(has, hint string) bool {
	hint = strings.TrimSpace(hint)
	return hint != "" && strings.EqualFold(strings.TrimSpace(has), hint)
}

func contains(has, hint string) bool {
	hint = strings.ToLower(strings.TrimSpace(hint))
	return hint != "" && strings.Contains(strings.ToLower(has), hint)
}

// bareWWN takes off the prefixes that some tools write before the digits and others do not.
func bareWWN(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, prefix := range []string{"wwn-", "0x", "naa.", "eui.", "nvme-eui.", "uuid."} {
		s = strings.TrimPrefix(s, prefix)
	}
	return s
}
