package pool_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/id"
	"github.com/better-compute/metal/domain/pool"
)

func TestPolicy(t *testing.T) {
	create := pool.Create{Facts: pool.Created{Pool: id.Of[id.Pool](uuid.UUID{15: 1}), Name: "x", Policy: pool.Policy{Agent: pool.AgentRequired}}}
	if _, err := pool.Decide(pool.State{}, pool.ChangePolicy{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the policy of nothing: %v", err)
	}
	made, err := pool.Decide(pool.State{}, create)
	if err != nil {
		t.Fatal(err)
	}
	s := pool.Decider.Fold(pool.State{}, made...)
	if _, err := pool.Decide(s, create); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("created twice: %v", err)
	}
	good := pool.Policy{Agent: pool.AgentNone, UnverifiedRelease: pool.AllowUnverifiedRelease}
	changed, err := pool.Decide(s, pool.ChangePolicy{Policy: good})
	if err != nil || len(changed) != 1 {
		t.Fatalf("got %v, %v", changed, err)
	}
	s = pool.Decider.Fold(s, changed...)
	if again, err := pool.Decide(s, pool.ChangePolicy{Policy: good}); err != nil || len(again) != 0 {
		t.Errorf("the same policy again: %v, %v", again, err)
	}
	for _, bad := range []pool.Policy{{Agent: "maybe"}, {Agent: pool.AgentRequired, UnverifiedRelease: pool.AllowUnverifiedRelease}, {Agent: pool.AgentNone, UnverifiedRelease: "yes"}} {
		if _, err := pool.Decide(s, pool.ChangePolicy{Policy: bad}); fault.CodeOf(err) != fault.InvalidInput {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
