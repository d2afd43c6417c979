package limit_test

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/domain/fault"
)

func TestTransfersWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transfers := limit.NewTransfers(2, 2, time.Second)
		enter := func(machine string) func() {
			leave, err := transfers.Enter(t.Context(), machine)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		first := enter("a")
		second := enter("a")
		if _, err := transfers.Enter(t.Context(), "a"); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("a third of one machine: %v", err)
		}
		begun := time.Now()
		if _, err := transfers.Enter(t.Context(), "b"); fault.CodeOf(err) != fault.RateLimited || time.Since(begun) != time.Second {
			t.Errorf("a third: %v after %s", err, time.Since(begun))
		}
		time.AfterFunc(time.Second/2, first)
		begun = time.Now()
		third := enter("b")
		if waited := time.Since(begun); waited != time.Second/2 {
			t.Errorf("its turn came after %s", waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := transfers.Enter(gone, "c"); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("who went away: %v", err)
		}
		first() // a second time: it gives nobody's place away
		if _, err := transfers.Enter(t.Context(), "c"); fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("after a second end of the first: %v", err)
		}
		second()
		third()
		enter("a")()
	})
}

// Whoever asks by UDP may say that he is anybody: what waits must not grow by that.
func TestTheLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const line = 32
		transfers := limit.NewTransfers(2, 1, time.Minute)
		var all sync.WaitGroup
		refused, served := atomic.Int32{}, atomic.Int32{}
		for i := range 100 {
			all.Go(func() {
				leave, err := transfers.Enter(t.Context(), strconv.Itoa(i))
				if err != nil {
					refused.Add(1)
					return
				}
				time.Sleep(time.Second)
				served.Add(1)
				leave()
			})
		}
		synctest.Wait()
		if n := refused.Load(); n != 100-line-2 {
			t.Errorf("%d were sent away at once", n)
		}
		all.Wait()
		if n := served.Load(); n != line+2 {
			t.Errorf("%d were served", n)
		}
		leave, err := transfers.Enter(t.Context(), "the first again")
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		data := bytes.Repeat([]byte("x"), 10_000)
		rate := limit.NewRate(1000)
		done := make(chan int64, 2)
		for range 2 { // the bound is that of both together
			go func() {
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, rate.Reader(t.Context(), bytes.NewReader(data)), make([]byte, 500))
				if err != nil {
					t.Error(err)
				}
				done <- n
			}()
		}
		if n := <-done + <-done; n != 20_000 {
			t.Errorf("%d bytes", n)
		}
		if took := time.Since(begun); took < 19*time.Second || took > 20*time.Second {
			t.Errorf("20,000 bytes at 1,000 a second took %s", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		if err := rate.Take(gone, 5000); err != nil && took(begun) < 20*time.Second {
			t.Error(err)
		}
		cancel()
		if _, err := io.ReadAll(rate.Reader(gone, bytes.NewReader(data))); err == nil {
			t.Error("who went away still reads")
		}
	})
	if limit.NewRate(0).Take(t.Context(), 1<<30) != nil {
		t.Error("no bound is one")
	}
}

func took(begun time.Time) time.Duration { return time.Since(begun) }
