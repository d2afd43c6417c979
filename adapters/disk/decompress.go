package disk

import (
	"compress/gzip"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/metal/domain/fault"
)

// window is how much of what was unpacked zstd may look back at: an image must not cost a ramdisk its memory.
const window = 256 << 20

func decompress(source io.Reader, compression string) (io.Reader, error) {
	switch compression {
	case "":
		return source, nil
	case "gz":
		return &lazy{open: func() (io.Reader, error) { return gzip.NewReader(source) }}, nil
	case "xz":
		return &lazy{open: func() (io.Reader, error) { return xz.NewReader(source) }}, nil
	case "zst":
		return &lazy{open: func() (io.Reader, error) {
			return zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window),
				zstd.WithDecoderLowmem(true))
		}}, nil
	}
	return nil, fault.New(fault.InvalidInput, "an image compressed as %q is not known; gz, xz and zst are", compression)
}

// lazy opens a decompressor at the first read, so that a broken header is told where every other fault of the image is.
type lazy struct {
	open func() (io.Reader, error)
	in   io.Reader
}

func (l *lazy) Read(p []byte) (int, error) {
	if l.in == nil {
		in, err := l.open()
		if err != nil {
			return 0, unexpected(err)
		}
		l.in = in
	}
	return l.in.Read(p)
}

// unexpected is the end of a source that has not even a header: not the proper end of an image.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // the bare value is what decompressors give
		return io.ErrUnexpectedEOF
	}
	return err
}
