package qemu

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/better-compute/metal/adapters/sim/bmcsim"
)

const (
	opticalSlot  = 0 // of the controller's virtual drives
	opticalDrive = "optical"
	fetchWithin  = time.Minute
)

// MediaFile is what the controller has fetched for the machine's optical drive.
func (m *Machine) MediaFile() string { return filepath.Join(m.dir, m.spec.Name+"-media.iso") }

// SetMedia puts an image into a virtual drive, or takes it out, also while the machine runs. The controller fetches the image
// itself, as controllers do; what it can't fetch is not in the drive.
func (m *Machine) SetMedia(slot int, media bmcsim.Media) {
	var err error
	if media.Inserted && slot == opticalSlot {
		err = fetchMedia(media.Image, m.MediaFile())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		m.say("nothing for the virtual drive: " + err.Error())
		return
	case media.Inserted:
		m.say("virtual drive holds " + media.Image)
	default:
		m.say("virtual drive is empty")
	}
	m.state.Media[slot] = media
	if m.life == nil || slot != opticalSlot {
		return
	}
	if media.Inserted {
		err = m.tell("blockdev-change-medium", map[string]any{"id": opticalDrive, "filename": m.MediaFile(), "format": "raw"})
	} else {
		err = m.tell("eject", map[string]any{"id": opticalDrive, "force": true})
	}
	if err != nil { // QEMU may have ended: the next one finds the drive as it is
		m.say("virtual drive: " + err.Error())
	}
}

// fetchMedia downloads an image. Controllers do not ask whose certificate it is, unless they are told to.
func fetchMedia(url, to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), fetchWithin)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	// Another file each time: the machine may have the one before open.
	file, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+"-")
	if err != nil {
		return err
	}
	n, err := io.Copy(file, answer.Body)
	if err = errors.Join(err, file.Close()); err == nil && n == 0 {
		err = errors.New("the image is empty")
	}
	if err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // it is of no use
	}
	return err
}

// opticalArguments is the machine's drive. bootFirst: the firmware looks there first.
func (m *Machine) opticalArguments(bootFirst bool) []string {
	drive := "if=none,id=media0,media=cdrom"
	if m.state.Media[opticalSlot].Inserted {
		drive += ",format=raw,readonly=on,file=" + m.MediaFile()
	}
	device := "ide-cd,bus=ide.0,drive=media0,id=" + opticalDrive
	if bootFirst {
		device += ",bootindex=0"
	}
	return []string{"-drive", drive, "-device", device}
}
