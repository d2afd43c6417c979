package steps

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/better-compute/metal/domain/fault"
)

// finalReasons are what a controller or a machine says that stays so until somebody does something about it. A rejected login is among
// them: controllers lock an account after a few; and a machine that lost its power or restarted: nobody is in it to try again.
var finalReasons = []string{
	"credentials-rejected", "certificate-changed", "certificate-untrusted", "machine-changed", "other-machine", "unsupported",
	"ambiguous-system", reasonNoSystem, reasonOff, reasonRestarted,
}

// reasonNoSystem is what a driver says where the controller lists no system of the name that was asked for.
const reasonNoSystem = "system-not-found"

// Final reports whether trying again can't help: another attempt of the step would fail the same way.
func Final(err error) bool {
	var known *fault.Error
	if !errors.As(err, &known) {
		return false
	}
	switch known.Code {
	case fault.InvalidConfig, fault.InvalidInput, fault.NotFound, fault.Forbidden:
		return true
	default:
		return slices.Contains(finalReasons, reasonOf(known))
	}
}

// reasonOf is the reason in an error's details: the driver's own where an agent told of it.
func reasonOf(e *fault.Error) string {
	if raw, ok := e.Details["details"].(json.RawMessage); ok {
		var told struct {
			Reason string `json:"reason"`
		}
		if json.Unmarshal(raw, &told) == nil && told.Reason != "" {
			return told.Reason
		}
	}
	reason, _ := e.Details["reason"].(string)
	return reason
}
