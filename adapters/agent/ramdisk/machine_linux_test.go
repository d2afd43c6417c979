package ramdisk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/metal/adapters/disk"
	"github.com/better-compute/metal/domain/fault"
)

func TestTheDisksSettle(t *testing.T) {
	const disks = 5
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		look func(time.Duration) ([]disk.Info, error) // how long after the first look
		took time.Duration
		want fault.Code // empty: they settle
	}{
		{"all there", func(time.Duration) ([]disk.Info, error) { return make([]disk.Info, disks), nil }, 2 * time.Second, ""},
		{"none", func(time.Duration) ([]disk.Info, error) { return nil, nil }, 2 * time.Second, ""},
		{"one each second", func(d time.Duration) ([]disk.Info, error) {
			return make([]disk.Info, min(disks, d/time.Second)), nil
		}, (disks + 2) * time.Second, ""},
		{"never", func(d time.Duration) ([]disk.Info, error) { return make([]disk.Info, d/time.Second), nil }, time.Minute, fault.DriverError},
		{"they can't be listed", func(time.Duration) ([]disk.Info, error) { return nil, broken }, 0, fault.CodeOf(broken)},
		{"not any more", func(d time.Duration) ([]disk.Info, error) {
			if d >= time.Second {
				return nil, broken
			}
			return make([]disk.Info, disks), nil
		}, time.Second, fault.CodeOf(broken)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := settle(t.Context(), func() ([]disk.Info, error) { return test.look(time.Since(began)) })
				if took := time.Since(began); (err != nil) != (test.want != "") || err != nil && fault.CodeOf(err) != test.want || took != test.took {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := settle(ctx, func() ([]disk.Info, error) { return nil, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
