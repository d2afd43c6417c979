package projectiontest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/better-compute/metal/test/pgtest"
)

// checks is how many histories a property tries unless -rapid.checks says otherwise: each costs dozens of
// transactions.
const checks = "12"

// Main runs the tests of a package of projections; its TestMain calls it.
func Main(m *testing.M) {
	if err := flag.Set("rapid.checks", checks); err != nil {
		fmt.Fprintln(os.Stderr, "projectiontest:", err)
		os.Exit(1)
	}
	pgtest.Main(m)
}
