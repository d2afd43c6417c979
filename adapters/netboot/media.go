package netboot

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// MediumFile is the image for virtual drives, among the server's own files, that each machine's own is made of. It is what
// bcd image build-ramdisk writes.
const MediumFile = "ramdisk.iso"

// mediumNote stands at the beginning of that image: from which byte on so many are blanks in the kernel's command line.
const mediumNote = "metal-medium 1 %d %d\n"

const (
	mediumNoteMost  = 64
	mediumPlaceMost = 4096
)

// mediumOf is what a machine's image is reached by. It does not tell the reference that it is made of, and is over with it.
func mediumOf(ref string) string {
	sum := sha256.Sum256([]byte("medium " + ref))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// findMedium gives the live entry that an image is of.
func (e *Entries) findMedium(name string) (entry Entry, ref string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.live(e.byMedium[name])
	if h == nil {
		return Entry{}, "", false
	}
	found := h.Entry
	found.Token = ""
	return found, h.ref, true
}

// MediumURL is where a controller finds the image that a machine with an entry boots from a virtual drive; empty: there is none.
func (s *Server) MediumURL(nodeID string) string {
	entry, ref, ok := s.Entries.ofNode(nodeID)
	if !ok {
		return ""
	}
	medium, err := s.openMedium(entry, ref)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.Logger.Warn("no image for virtual drives", "node", nodeID, "error", err)
		}
		return ""
	}
	_ = medium.Close() // nothing was read but its beginning
	return strings.TrimSuffix(cmp.Or(s.Media, s.URL), "/") + pathMedium + mediumOf(ref) + "/" + MediumFile
}

func (e *Entries) ofNode(nodeID string) (entry Entry, ref string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.live(e.byNode[nodeID])
	if h == nil {
		return Entry{}, "", false
	}
	return h.Entry, h.ref, true
}

// medium serves the image of one machine, in parts too: controllers read what firmware asks them for.
func (s *Server) medium(w http.ResponseWriter, r *http.Request) {
	entry, ref, ok := s.Entries.findMedium(r.PathValue("medium"))
	if !ok {
		refuse(w, fault.New(fault.NotFound, "there is no such image, or the machine has booted from it").
			WithRemedy("boot the machine again under a fresh entry"))
		return
	}
	medium, err := s.openMedium(entry, ref)
	if err != nil {
		s.Logger.Warn("no image for a virtual drive", "node", entry.NodeID, "error", err)
		refuse(w, fault.Wrap(err, fault.NotFound, "there is no such image"))
		return
	}
	defer medium.Close() //nolint:errcheck // it was read
	s.Logger.Debug("a virtual drive reads what its machine boots", "node", entry.NodeID, "range", r.Header.Get("Range"))
	s.transfer(r.Context(), w, r, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "no-store")
		http.ServeContent(w, r, "", medium.made, medium)
	})
}

// medium is the image of one machine.
type medium struct {
	io.ReadSeeker
	io.Closer
	made time.Time
}

// filled is the file, but for what stands in the place that is left for it.
type filled struct {
	io.ReaderAt
	place int64
	words []byte
}

// ReadAt reads what a machine reads.
func (f *filled) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(p, at)
	if from := max(at, f.place); from < min(at+int64(n), f.place+int64(len(f.words))) {
		copy(p[from-at:n], f.words[from-f.place:])
	}
	return n, err
}

// openMedium fills a machine's kernel arguments into the image. Where there are no virtual drives the file is missing.
func (s *Server) openMedium(entry Entry, ref string) (m *medium, err error) {
	if s.Files == nil {
		return nil, fs.ErrNotExist
	}
	file, err := s.Files.Open(MediumFile)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close() // it is of no use
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	parts, ok := file.(io.ReaderAt)
	if !ok {
		return nil, fault.New(fault.InvalidConfig, "%s can't be read in parts", MediumFile)
	}
	f := &filled{ReaderAt: parts, words: []byte(strings.Join(s.boot(entry, ref).arguments(), " "))}
	if err := f.findPlace(info.Size()); err != nil {
		return nil, err
	}
	return &medium{ReadSeeker: io.NewSectionReader(f, 0, info.Size()), Closer: file, made: info.ModTime()}, nil
}

// findPlace reads where the image leaves room, and checks that nothing is there and that there is enough of it.
func (f *filled) findPlace(size int64) error {
	bad := fault.New(fault.InvalidConfig, "%s is none that a machine's arguments can be filled into", MediumFile).
		WithRemedy("make it with: bcd image build-ramdisk --iso")
	note := make([]byte, mediumNoteMost)
	if _, err := f.ReaderAt.ReadAt(note, 0); err != nil {
		return bad
	}
	room := 0
	_, err := fmt.Sscanf(string(note), mediumNote, &f.place, &room)
	if err != nil || room < 1 || room > mediumPlaceMost || f.place < mediumNoteMost || f.place > size-int64(room) {
		return bad
	}
	blank := make([]byte, room)
	if _, err := f.ReaderAt.ReadAt(blank, f.place); err != nil || strings.Trim(string(blank), " ") != "" {
		return bad
	}
	if len(f.words) > room {
		return fault.New(fault.InvalidConfig, "the kernel's arguments have %d bytes, and %s has room for %d", len(f.words), MediumFile, room)
	}
	return nil
}
