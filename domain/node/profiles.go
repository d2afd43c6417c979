package node

import (
	"slices"
	"strings"
)

// UnrescueProfile is what leaves rescue; it is the one profile of a machine's life that no state of the table names.
const UnrescueProfile = "metal-unrescue"

// OutOfBandSuffix ends the names of the profiles for machines that never run an agent.
const OutOfBandSuffix = "-oob"

// PartOfLife reports whether a profile is one that machines run on their way between states. It installs nothing: a machine
// that was deployed with it would count as deployed and hold no OS.
func PartOfLife(profile string) bool {
	name := strings.TrimSuffix(profile, OutOfBandSuffix)
	return name == UnrescueProfile ||
		slices.ContainsFunc(States, func(row StateInfo) bool { return row.Profile != "" && row.Profile == name })
}
