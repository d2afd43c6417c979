package disk

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/better-compute/metal/domain/fault"
)

// A qcow2 file is read at random, and a ramdisk has no other place to keep it: it is spooled behind the space that the disk
// it describes needs, on the target itself, proven there, and unpacked to the front. A target without room for both is
// refused.

// qcow2Header is the part of a qcow2 header that is needed.
type qcow2Header struct {
	clusterBits uint
	size        int64 // of the disk that it describes
	tables      int   // entries of the first level
	tablesAt    int64
	zstd        bool
}

const (
	maxTables  = 32 << 20 / 8
	headerSize = 112
)

func parseQcow2(h []byte) (qcow2Header, error) {
	be := binary.BigEndian
	refuse := func(format string, args ...any) (qcow2Header, error) {
		return qcow2Header{}, fault.New(fault.InvalidInput, "the qcow2 image %s", fmt.Sprintf(format, args...)).
			WithRemedy("convert it with qemu-img convert -O qcow2, or serve it as raw.zst")
	}
	if len(h) < headerSize || string(h[:4]) != "QFI\xfb" {
		return refuse("does not begin as one does")
	}
	version := be.Uint32(h[4:])
	out := qcow2Header{
		clusterBits: uint(be.Uint32(h[20:])), size: int64(be.Uint64(h[24:])),
		tables: int(be.Uint32(h[36:])), tablesAt: int64(be.Uint64(h[40:])),
	}
	switch {
	case version != 2 && version != 3:
		return refuse("is of version %d; 2 and 3 are known", version)
	case be.Uint64(h[8:]) != 0:
		return refuse("needs a backing file")
	case be.Uint32(h[32:]) != 0:
		return refuse("is encrypted")
	case out.clusterBits < 9 || out.clusterBits > 21:
		return refuse("has clusters of 2^%d bytes", out.clusterBits)
	case out.size <= 0 || out.tables <= 0 || out.tables > maxTables || out.tablesAt <= 0:
		return refuse("describes no disk")
	}
	if version == 3 {
		features := be.Uint64(h[72:])
		const dirty, compression = 1, 8
		if features&^(dirty|compression) != 0 {
			return refuse("uses features %#x that are not known", features&^(dirty|compression))
		}
		if features&compression != 0 {
			if h[104] != 1 {
				return refuse("is compressed in a way that is not known")
			}
			out.zstd = true
		}
	}
	if perTable := int64(1) << (2*out.clusterBits - 3); int64(out.tables) < (out.size+perTable-1)/perTable {
		return refuse("has too small a table")
	}
	return out, nil
}

// sparse spools a qcow2 file, and writes the disk that it describes.
func (w *writing) sparse(ctx context.Context, raw io.Reader) (int64, error) {
	first := make([]byte, chunk)
	n, _, err := fill(raw, first)
	if err != nil {
		return 0, err
	}
	header, invalid := parseQcow2(first[:n])
	if invalid != nil {
		_, proof := io.Copy(io.Discard, raw) // a digest that differs says more than a header that is odd
		return 0, errors.Join(proof, invalid)
	}
	if header.size > w.room() {
		return 0, fault.New(fault.DriverError, "the disk is full: it has room for an image of %d bytes", w.room()).
			WithDetail("room", w.room()).WithDetail("needs", header.size)
	}
	spool := &spool{w: w, start: (header.size + head - 1) / head * head}
	if err := spool.write(first[:n]); err != nil {
		return 0, err
	}
	if err := spool.fill(ctx, raw, first); err != nil {
		return 0, err
	}
	q := &qcow2{qcow2Header: header, file: spool, w: w}
	if err := q.unpack(ctx); err != nil {
		return 0, err
	}
	return header.size, zero(ctx, w.device, spool.start, spool.length, nil)
}

// spool is the file, on the target.
type spool struct {
	w             *writing
	start, length int64
}

func (s *spool) write(p []byte) error {
	if s.start+s.length+int64(len(p)) > min(s.w.room(), s.w.size-head) { // what is there is not proven yet, and may look like a table
		return fault.New(fault.DriverError, "the disk has no room to unpack a qcow2 image beside what it unpacks to").
			WithRemedy("serve the image as raw.zst")
	}
	if _, err := s.w.device.WriteAt(p, s.start+s.length); err != nil {
		return s.w.failed(err, "write at %d", s.start+s.length)
	}
	s.length += int64(len(p))
	return nil
}

func (s *spool) fill(ctx context.Context, raw io.Reader, buffer []byte) error {
	for {
		n, ended, err := fill(raw, buffer)
		if err != nil {
			return err
		}
		if n > 0 {
			if err := errors.Join(ctx.Err(), s.write(buffer[:n])); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// read gives a part of the file; what is beyond its end is zero, as for a last cluster that was cut short.
func (s *spool) read(at, length int64) ([]byte, error) {
	p := make([]byte, length)
	if at < 0 || at >= s.length {
		return nil, fault.New(fault.DriverError, "the qcow2 image points beyond its own end")
	}
	part := p[:min(length, s.length-at)]
	if n, err := s.w.device.ReadAt(part, s.start+at); n < len(part) {
		return nil, s.w.failed(err, "read at %d", s.start+at)
	}
	return p, nil
}

// qcow2 is a spooled image being unpacked.
type qcow2 struct {
	qcow2Header
	file *spool
	w    *writing
}

func (q *qcow2) unpack(ctx context.Context) error {
	level1, err := q.file.read(q.tablesAt, int64(q.tables)*8)
	if err != nil {
		return err
	}
	cluster := int64(1) << q.clusterBits
	for at := int64(0); at < q.size; at += cluster << (q.clusterBits - 3) {
		table := int64(binary.BigEndian.Uint64(level1[at>>(2*q.clusterBits-3)*8:]) & 0x00fffffffffffe00)
		end := min(at+cluster<<(q.clusterBits-3), q.size)
		if table == 0 {
			if err := q.empty(ctx, at, end-at); err != nil {
				return err
			}
			continue
		}
		entries, err := q.file.read(table, cluster)
		if err != nil {
			return err
		}
		if err := q.clusters(ctx, entries, at, end); err != nil {
			return err
		}
	}
	return nil
}

func (q *qcow2) clusters(ctx context.Context, entries []byte, at, end int64) error {
	cluster := int64(1) << q.clusterBits
	for i := 0; at < end; i, at = i+1, at+cluster {
		entry := binary.BigEndian.Uint64(entries[8*i:])
		length := min(cluster, q.size-at)
		data, err := q.cluster(entry)
		switch {
		case err != nil:
			return err
		case data == nil:
			err = q.empty(ctx, at, length)
		default:
			err = q.store(ctx, data[:length], at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cluster gives the bytes of one cluster; nil where it reads as zeroes.
func (q *qcow2) cluster(entry uint64) ([]byte, error) {
	cluster := int64(1) << q.clusterBits
	if entry>>62&1 == 1 {
		return q.unpacked(entry)
	}
	at := int64(entry & 0x00fffffffffffe00)
	if entry&1 == 1 || at == 0 {
		return nil, nil
	}
	return q.file.read(at, cluster)
}

// unpacked decompresses one cluster.
func (q *qcow2) unpacked(entry uint64) ([]byte, error) {
	bits := 62 - (q.clusterBits - 8)
	at := int64(entry & (1<<bits - 1))
	sectors := int64(entry>>bits&(1<<(q.clusterBits-8)-1)) + 1
	packed, err := q.file.read(at, sectors*sector-at%sector)
	if err != nil {
		return nil, err
	}
	var in io.Reader = flate.NewReader(bytes.NewReader(packed))
	if q.zstd {
		decoder, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, err
		}
		defer decoder.Close()
		in = decoder
	}
	out := make([]byte, int64(1)<<q.clusterBits)
	if _, err := io.ReadFull(in, out); err != nil {
		return nil, fault.New(fault.DriverError, "a cluster of the qcow2 image does not unpack")
	}
	return out, nil
}

// empty makes a range read as zeroes: what was on the disk before must not show through.
func (q *qcow2) empty(ctx context.Context, at, length int64) error {
	if at < head {
		n := min(length, head-at)
		if err := q.keep(make([]byte, n), at); err != nil {
			return err
		}
		at, length = at+n, length-n
	}
	if q.w.image.ReadBack && length > 0 {
		q.w.sums = append(q.w.sums, sum{at: span{at, length}, zero: true})
	}
	if err := zero(ctx, q.w.device, at, length, nil); err != nil {
		return q.w.failed(err, "write at %d", at)
	}
	return nil
}

func (q *qcow2) store(ctx context.Context, p []byte, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at < head {
		n := min(int64(len(p)), head-at)
		if err := q.keep(p[:n], at); err != nil {
			return err
		}
		p, at = p[n:], at+n
	}
	return q.w.place(p, at)
}

// keep holds back what belongs to the first MiB. Clusters come in order.
func (q *qcow2) keep(p []byte, at int64) error {
	if at != int64(len(q.w.first)) {
		return fault.New(fault.Internal, "clusters of the first MiB come out of order")
	}
	q.w.first = append(q.w.first, p...)
	return nil
}
