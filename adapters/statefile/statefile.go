// Package statefile keeps what an agent must find again after it was started anew: small files, for their owner's eyes only.
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file as a whole, and its directory where that is missing. After a crash, of the host too, there is the old
// file or the new one; where Replace has returned nil, the new one.
func Replace(path string, text []byte) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(directory, "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // after the rename it is gone already
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(directory)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // makes the rename last
}
