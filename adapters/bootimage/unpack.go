package bootimage

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// unpacked is a file's name without the ending of what it is packed with.
func unpacked(name string) string {
	switch path.Ext(name) {
	case ".gz", ".xz", ".zst":
		return strings.TrimSuffix(name, path.Ext(name))
	}
	return name
}

// unpacker reads what is packed as the name says.
func unpacker(name string, from io.Reader) (io.ReadCloser, error) {
	switch path.Ext(name) {
	case ".gz":
		return gzip.NewReader(from)
	case ".xz":
		r, err := xz.NewReader(from)
		return io.NopCloser(r), err
	case ".zst":
		r, err := zstd.NewReader(from)
		if err != nil {
			return nil, err
		}
		return r.IOReadCloser(), nil
	}
	return io.NopCloser(from), nil
}

func readUnpacked(files fs.FS, name string) ([]byte, error) {
	packed, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	r, err := unpacker(name, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was read
	return io.ReadAll(r)
}
