package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

func TestTheFirstValueStays(t *testing.T) {
	pool := pgtest.New(t)
	s := newSecrets(t, pool)
	secretID := uuid.Must(uuid.NewV7())
	var added atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		replica := newSecrets(t, pool)
		all.Go(func() {
			_, mine, err := replica.PutNew(t.Context(), secretID, []byte(fmt.Sprint(i)))
			if err != nil {
				t.Error(err)
			}
			if mine {
				added.Add(1)
			}
		})
	}
	all.Wait()
	if added.Load() != 1 {
		t.Errorf("%d replicas put the first value", added.Load())
	}
	first, mine, err := s.PutNew(t.Context(), secretID, []byte("late"))
	if err != nil || mine {
		t.Fatalf("put again: %t, %v", mine, err)
	}
	if value, err := s.Get(t.Context(), first); err != nil || string(value) == "late" {
		t.Errorf("a later value took the place of the first: %v", err)
	}
	_, _, err = s.PutNew(t.Context(), secretID, make([]byte, postgres.MaxSecretBytes+1))
	wantCode(t, err, fault.InvalidInput)
}
