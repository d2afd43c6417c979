package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/better-compute/metal/domain/fault"
)

func TestEveryCodeHasARow(t *testing.T) {
	seen := map[fault.Code]bool{}
	for _, row := range fault.Codes {
		if seen[row.Code] || row.When == "" || row.Remedy == "" || row.HTTP < 400 || row.HTTP > 599 {
			t.Errorf("%+v", row)
		}
		seen[row.Code] = true
		if fault.Info(row.Code) != row {
			t.Errorf("%s reads as %+v", row.Code, fault.Info(row.Code))
		}
	}
	if fault.Info("NO_SUCH_CODE").Code != fault.Internal {
		t.Error("an unknown code does not read as INTERNAL")
	}
}

func TestCodeOf(t *testing.T) {
	conflict := fault.New(fault.Conflict, "lost")
	for want, err := range map[fault.Code]error{
		"": nil, fault.Internal: errors.New("x"), fault.Conflict: fmt.Errorf("deploy: %w", conflict),
	} {
		if got := fault.CodeOf(err); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
	if !errors.Is(fmt.Errorf("x: %w", conflict), fault.New(fault.Conflict, "")) {
		t.Error("errors.Is does not match by code")
	}
	if cause := errors.New("dial"); !errors.Is(fault.Wrap(cause, fault.Unavailable, "away"), cause) {
		t.Error("the cause is lost")
	}
}
