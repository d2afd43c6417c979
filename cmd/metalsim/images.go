package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
)

// imageBytes is the size of the images that are made.
const imageBytes = 1 << 20

// image is one file that is served.
type image struct {
	name, digest string
	bytes        int64
}

// prepareImages makes the directory and two images where there are none, and gives every file with its digest.
func prepareImages(dir string) ([]image, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "can't make %s: %v", dir, err).WithRemedy("name a directory that can be made")
	}
	images, err := listImages(dir)
	if err != nil || len(images) > 0 {
		return images, err
	}
	for _, name := range []string{"simos-1", "simos-2"} {
		if err := os.WriteFile(filepath.Join(dir, name+".raw"), sim.OSImage(imageBytes, name), 0o600); err != nil {
			return nil, fault.Wrap(err, fault.InvalidConfig, "can't write to %s: %v", dir, err).
				WithRemedy("name a directory that can be written")
		}
	}
	return listImages(dir)
}

func listImages(dir string) ([]image, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "can't read %s: %v", dir, err).WithRemedy("name a directory that can be read")
	}
	var images []image
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		digest, size, err := digestOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		images = append(images, image{e.Name(), digest, size})
	}
	return images, nil
}

func digestOf(file string) (string, int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	n, err := io.Copy(h, f)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), n, err
}

func printImages(out io.Writer, base string, images []image) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\nIMAGE\tBYTES\tDIGEST")
	for _, i := range images {
		_, _ = fmt.Fprintf(w, "%s/%s\t%d\t%s\n", base, i.name, i.bytes, i.digest)
	}
	_ = w.Flush() // a table that can't be printed changes nothing
}
