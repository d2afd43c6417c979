package disk

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/metal/domain/fault"
)

// window is how much of what was unpacked zstd and xz may look back at: an image must not cost a ramdisk its memory.
const window = 256 << 20

func decompress(source io.Reader, compression string) (io.Reader, error) {
	switch compression {
	case "":
		return source, nil
	case "gz":
		return &lazy{open: func() (io.Reader, error) { return gzip.NewReader(source) }}, nil
	case "xz":
		return &lazy{open: func() (io.Reader, error) {
			packed := bufio.NewReaderSize(source, 4096)
			if needs := xzDictionary(packed); needs > window {
				return nil, fault.New(fault.InvalidInput, "the image needs %d bytes of memory to unpack; %d are given", needs, window).
					WithRemedy("pack it with xz -9 or less, or as raw.zst")
			}
			return xz.NewReader(packed)
		}}, nil
	case "zst":
		return &lazy{open: func() (io.Reader, error) {
			return zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window),
				zstd.WithDecoderLowmem(true))
		}}, nil
	}
	return nil, fault.New(fault.InvalidInput, "an image compressed as %q is not known; gz, xz and zst are", compression)
}

// xzDictionary is how much an xz file wants to look back at, as the head of its first block tells: those of one file are alike.
// Zero: it does not tell, and the unpacking will tell why.
func xzDictionary(packed *bufio.Reader) int64 {
	const streamHeader, lzma2, sizes = 12, 0x21, 2
	head, _ := packed.Peek(streamHeader + 2)
	if len(head) < streamHeader+2 {
		return 0
	}
	all, _ := packed.Peek(streamHeader + 4*(int(head[streamHeader])+1))
	flags, rest := head[streamHeader+1], all[min(len(all), streamHeader+2):]
	next := func() uint64 {
		n, size := binary.Uvarint(rest)
		rest = rest[max(min(size, len(rest)), 0):]
		return n
	}
	for bit := range sizes {
		if flags>>(6+bit)&1 != 0 {
			next()
		}
	}
	for range flags&3 + 1 {
		id, length := next(), next()
		if length > uint64(len(rest)) {
			return 0
		}
		if id == lzma2 && length == 1 && rest[0] < 40 {
			return (2 | int64(rest[0]&1)) << (rest[0]/2 + 11)
		} else if id == lzma2 && length == 1 {
			return 1 << 32
		}
		rest = rest[length:]
	}
	return 0
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
