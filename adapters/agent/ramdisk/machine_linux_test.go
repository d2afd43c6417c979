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
		name  string
		look  func(time.Duration) ([]disk.Info, error) // how long after the first look
		start time.Duration                            // of the slowest controller
		took  time.Duration
		want  fault.Code // empty: they settle
	}{
		{"all there", func(time.Duration) ([]disk.Info, error) { return make([]disk.Info, disks), nil }, 0, 2 * time.Second, ""},
		{"none", func(time.Duration) ([]disk.Info, error) { return nil, nil }, 0, 2 * time.Second, ""},
		{"one each second", func(d time.Duration) ([]disk.Info, error) {
			return make([]disk.Info, min(disks, d/time.Second)), nil
		}, 0, (disks + 2) * time.Second, ""},
		{"never", func(d time.Duration) ([]disk.Info, error) { return make([]disk.Info, d/time.Second), nil }, 0, time.Minute, fault.DriverError},
		{"they can't be listed", func(time.Duration) ([]disk.Info, error) { return nil, broken }, 0, 0, fault.CodeOf(broken)},
		{"not any more", func(d time.Duration) ([]disk.Info, error) {
			if d >= time.Second {
				return nil, broken
			}
			return make([]disk.Info, disks), nil
		}, 0, time.Second, fault.CodeOf(broken)},
		{"a slow controller", func(d time.Duration) ([]disk.Info, error) {
			return make([]disk.Info, d/(50*time.Second)), nil
		}, 101 * time.Second, 103*time.Second - settleLook, ""},
		{"a controller that does not come up", func(time.Duration) ([]disk.Info, error) {
			return make([]disk.Info, disks), nil
		}, time.Hour, 3 * time.Minute, fault.DriverError},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := settle(t.Context(), func() (there []disk.Info, starting []string, err error) {
					if time.Since(began) < test.start {
						starting = []string{"nvme0"}
					}
					there, err = test.look(time.Since(began))
					return there, starting, err
				})
				if took := time.Since(began); (err != nil) != (test.want != "") || err != nil && fault.CodeOf(err) != test.want || took != test.took {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := settle(ctx, func() ([]disk.Info, []string, error) { return nil, nil, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
