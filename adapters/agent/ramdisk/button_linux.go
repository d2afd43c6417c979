package ramdisk

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// watchButtons calls press when a power button is pressed, until ctx ends. Devices may come later: a keyboard, or a driver
// that was slow.
func watchButtons(ctx context.Context, root fs.FS, log *slog.Logger, press func()) {
	var reading sync.WaitGroup
	defer reading.Wait()
	var mu sync.Mutex
	open := map[string]bool{}
	for {
		for _, name := range powerButtons(root) {
			mu.Lock()
			known := open[name]
			open[name] = true
			mu.Unlock()
			if known {
				continue
			}
			reading.Go(func() {
				err := readButton(ctx, "/dev/input/"+name, press)
				log.Debug("a power button is gone", "device", name, "error", err)
				mu.Lock()
				delete(open, name) // another device may get its name
				mu.Unlock()
			})
		}
		if !pause(ctx, lookAgain) {
			return
		}
	}
}

func readButton(ctx context.Context, name string, press func()) error {
	device, err := os.Open(name)
	if err != nil {
		return err
	}
	defer device.Close() //nolint:errcheck // it was read
	stopped := context.AfterFunc(ctx, func() { _ = device.SetReadDeadline(time.Unix(1, 0)) })
	defer stopped()
	buffer := make([]byte, 64*inputEventBytes)
	for {
		n, err := device.Read(buffer)
		if err != nil {
			return err
		}
		if pressed(buffer[:n]) {
			press()
		}
	}
}
