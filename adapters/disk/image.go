package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Image is what WriteImage is to write.
type Image struct {
	Digest    string // sha256:<hex> of the bytes as they are read
	Format    string // raw or qcow2, with .gz, .xz or .zst where compressed
	Bytes     int64  // as they are read
	Signature []byte // over the digest; see verify
	Signer    string // PEM
	ReadBack  bool   // read all of it back from the disk
	// Config is what goes to the config drive; nil: there is none.
	Config *Config
}

// Written says what WriteImage did.
type Written struct {
	Bytes    int64 // after decompression, of the whole disk that the image is of
	ReadBack bool
}

// WriteImage streams an image to a device and verifies it. Nothing boots from the device before everything is proven: its
// last MiB, where the backup of a partition table is by which firmware mends one that is missing, is written then, and its first
// one after it. Where anything fails, the first and the last MiB are zeroed, so that neither the image nor what
// was there before boots. A disk that other machines may share is refused, and not touched.
func WriteImage(ctx context.Context, d Device, source io.Reader, image Image, progress Progress) (Written, error) {
	size := d.Info().Bytes
	if size < 2*head+configReserve {
		return Written{}, fault.New(fault.DriverError, "the disk has %d bytes only", size)
	}
	if reason := prepare(ctx, d, false); reason != "" {
		return Written{}, fault.New(fault.DriverError, "%s: %s", d.Info().Path, reason)
	}
	w := &writing{device: d, size: size, image: image, progress: progress, digest: sha256.New()}
	if err := w.unboot(ctx); err != nil {
		return Written{}, err
	}
	written, err := w.run(ctx, source)
	if err != nil {
		return Written{}, errors.Join(err, w.unboot(context.WithoutCancel(ctx)))
	}
	return written, nil
}

// head is the part that is written last, at both ends: what firmware and boot loaders look at first.
const head = 1 << 20

// writing is one image on its way to a disk.
type writing struct {
	device   Device
	size     int64
	image    Image
	progress Progress
	digest   hash.Hash // of what is read

	first []byte // the image's first MiB, kept back
	last  []byte // the disk's last MiB, kept back too; nil: nothing of the image is there
	sums  []sum  // of what was written, for the read-back
}

// sum is what a range of the disk has to hold.
type sum struct {
	at     span // at most a chunk, but for zeroes
	zero   bool
	sha256 [sha256.Size]byte
}

// sumsOf cuts what was written into chunks.
func sumsOf(p []byte, at int64) (out []sum) {
	for len(p) > 0 {
		part := p[:min(len(p), chunk)]
		out = append(out, sum{at: span{at, int64(len(part))}, sha256: sha256.Sum256(part)})
		p, at = p[len(part):], at+int64(len(part))
	}
	return out
}

// unboot takes away what could boot.
func (w *writing) unboot(ctx context.Context) error {
	for _, at := range []int64{0, w.size - head} {
		if err := zero(ctx, w.device, at, head, nil); err != nil {
			return w.failed(err, "write at %d", at)
		}
	}
	if err := w.device.Sync(ctx); err != nil {
		return w.failed(err, "sync")
	}
	return nil
}

func (w *writing) run(ctx context.Context, source io.Reader) (Written, error) {
	raw, isSparse, err := w.open(ctx, source)
	if err != nil {
		return Written{}, err
	}
	write := w.stream
	if isSparse {
		write = w.sparse
	}
	written, err := write(ctx, raw)
	if err != nil {
		return Written{}, err
	}
	if err := w.finish(ctx, written); err != nil {
		return Written{}, err
	}
	w.progress(100, "")
	return Written{Bytes: written, ReadBack: w.image.ReadBack}, nil
}

// open puts counting, hashing and decompression in front of the source. The returned reader ends only after the whole source
// was read and its digest and signature were found right.
func (w *writing) open(ctx context.Context, source io.Reader) (raw io.Reader, isSparse bool, err error) {
	format, compression, _ := strings.Cut(w.image.Format, ".")
	if format != "raw" && format != "qcow2" {
		return nil, false, fault.New(fault.InvalidInput, "the image format %q is neither raw nor qcow2", w.image.Format)
	}
	served := &served{w: w, ctx: ctx, source: io.LimitReader(source, w.image.Bytes+1)}
	unpacked, err := decompress(served, compression)
	if err != nil {
		return nil, false, err
	}
	return &proven{unpacked: unpacked, served: served}, format == "qcow2", nil
}

// stream writes a raw image as it comes.
func (w *writing) stream(ctx context.Context, raw io.Reader) (int64, error) {
	buffer := make([]byte, chunk)
	var at int64
	for {
		n, ended, err := fill(raw, buffer)
		if err != nil {
			return at, err
		}
		if n > 0 {
			if err := w.put(ctx, buffer[:n], at); err != nil {
				return at, err
			}
			at += int64(n)
		}
		if ended {
			return at, nil
		}
	}
}

// fill reads until p is full or the reader has ended. Only a bare io.EOF is the end, which proven gives once all is proven;
// a wrapped one is a fault.
func fill(r io.Reader, p []byte) (n int, ended bool, err error) {
	for n < len(p) {
		more, err := r.Read(p[n:])
		n += more
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// put writes one piece, in order; the first is kept back.
func (w *writing) put(ctx context.Context, p []byte, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at+int64(len(p)) > w.room() {
		return fault.New(fault.DriverError, "the disk is full: it has room for an image of %d bytes", w.room()).
			WithDetail("room", w.room())
	}
	if at == 0 {
		w.first = append([]byte(nil), p...)
		return w.tableFits()
	}
	return w.place(p, at)
}

// place writes what is not to be kept back.
func (w *writing) place(p []byte, at int64) error {
	edge := w.size - head
	if n := min(max(edge-at, 0), int64(len(p))); n > 0 {
		if w.image.ReadBack {
			w.sums = append(w.sums, sumsOf(p[:n], at)...)
		}
		if _, err := w.device.WriteAt(p[:n], at); err != nil {
			return w.failed(err, "write at %d", at)
		}
		p, at = p[n:], at+n
	}
	if len(p) > 0 && w.last == nil {
		w.last = make([]byte, head)
	}
	if len(p) > 0 {
		copy(w.last[at-edge:], p)
	}
	return nil
}

// room is how large an image may be, with what is kept for a config drive at the end.
func (w *writing) room() int64 {
	if w.image.Config == nil {
		return w.size
	}
	return configOffset(w.size)
}

// finish proves what is on the disk, adds the config drive and lets it boot.
func (w *writing) finish(ctx context.Context, written int64) error {
	if written == 0 {
		return fault.New(fault.DriverError, "the image is empty")
	}
	if err := w.tableFits(); err != nil {
		return err
	}
	if w.image.Config != nil {
		if err := w.writeConfig(ctx); err != nil {
			return err
		}
	}
	if err := w.proveWritten(ctx); err != nil {
		return err
	}
	for _, kept := range []struct {
		data []byte
		at   int64
	}{{w.last, w.size - head}, {w.first, 0}} {
		if len(kept.data) == 0 {
			continue
		}
		if w.sums = nil; w.image.ReadBack {
			w.sums = sumsOf(kept.data, kept.at)
		}
		if _, err := w.device.WriteAt(kept.data, kept.at); err != nil {
			return w.failed(err, "write at %d", kept.at)
		}
		if err := w.proveWritten(ctx); err != nil {
			return err
		}
	}
	return nil
}

// proveWritten reads back what was written, once it is on the medium.
func (w *writing) proveWritten(ctx context.Context) error {
	if err := w.device.Sync(ctx); err != nil {
		return w.failed(err, "sync")
	}
	return w.readBack(ctx)
}

func (w *writing) readBack(ctx context.Context) error {
	buffer := make([]byte, chunk)
	for _, s := range w.sums {
		for done := int64(0); done < s.at.length; done += chunk {
			at := s.at.offset + done
			if err := ctx.Err(); err != nil {
				return err
			}
			p := buffer[:min(s.at.length-done, chunk)]
			if n, err := w.device.ReadAt(p, at); n < len(p) {
				return w.failed(err, "read back at %d", at)
			}
			if (s.zero && !isZero(p)) || (!s.zero && sha256.Sum256(p) != s.sha256) {
				return fault.New(fault.DriverError, "read back at %d: the disk does not hold what was written", at)
			}
		}
	}
	return nil
}

func (w *writing) failed(err error, format string, args ...any) error {
	return fault.Wrap(err, fault.DriverError, "%s: %s: %v", w.device.Info().Path, fmt.Sprintf(format, args...), err)
}

// served is the image as it is served: counted and hashed.
type served struct {
	w      *writing
	ctx    context.Context //nolint:containedctx // of one WriteImage, behind an io.Reader
	source io.Reader
	read   int64
}

func (s *served) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.source.Read(p)
	s.read += int64(n)
	s.w.digest.Write(p[:n])
	s.w.progress(99*float64(s.read)/float64(s.w.image.Bytes), "writing the image")
	if err != nil && err != io.EOF {
		return n, fault.Wrap(err, fault.DriverError, "reading the image broke off after %d of %d bytes: %v", s.read, s.w.image.Bytes, err)
	}
	return n, err
}

// prove reads what a decompressor left and checks all of it.
func (s *served) prove() error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	want := s.w.image
	if s.read != want.Bytes {
		return fault.New(fault.DriverError, "the image has %s bytes where %d were promised", s.length(), want.Bytes)
	}
	digest := s.w.digest.Sum(nil)
	if got := "sha256:" + hex.EncodeToString(digest); !strings.EqualFold(got, want.Digest) {
		return fault.New(fault.DriverError, "the image's digest is not the promised one").
			WithDetail("digest", got).WithDetail("wanted", want.Digest)
	}
	if err := verify(digest, want.Signature, want.Signer); err != nil {
		return fault.New(fault.DriverError, "the image is not signed as it should be: %s", err)
	}
	return nil
}

func (s *served) length() string {
	if s.read > s.w.image.Bytes {
		return "more"
	}
	return fmt.Sprint(s.read)
}

// proven ends where the source was proven.
type proven struct {
	unpacked io.Reader
	served   *served
}

func (p *proven) Read(b []byte) (int, error) {
	n, err := p.unpacked.Read(b)
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		return n, p.broken(err)
	}
	if err := p.served.prove(); err != nil {
		return n, err
	}
	return n, io.EOF
}

// broken says why decompression failed: most often the source ended early, or is not what was promised.
func (p *proven) broken(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	if ended := p.served.ctx.Err(); ended != nil {
		return ended
	}
	if proof := p.served.prove(); proof != nil {
		return proof
	}
	return fault.Wrap(err, fault.DriverError, "the image does not unpack: %v", err)
}
