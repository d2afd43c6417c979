package agentlink_test

import (
	"testing"

	"github.com/better-compute/metal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
