// Package builtin holds the profiles that are shipped: the life of a machine, and a deploy of an image.
//
// A tenant may store a profile of the same id, which then goes before the shipped one.
package builtin

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/better-compute/metal/domain/profile"
)

//go:embed *.json
var files embed.FS

// Profiles reads the shipped profiles, in the order of their ids.
func Profiles() ([]profile.Document, error) {
	names, err := fs.Glob(files, "*.json")
	if err != nil {
		return nil, fmt.Errorf("shipped profiles: %w", err)
	}
	docs := make([]profile.Document, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("shipped profile %s: %w", name, err)
		}
		if docs[i], err = profile.Parse(text); err != nil {
			return nil, fmt.Errorf("shipped profile %s: %w", name, err)
		}
	}
	return docs, nil
}
