package netboot

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/better-compute/metal/adapters/netboot/cache"
	"github.com/better-compute/metal/domain/fault"
)

const (
	fetchWait = 20 * time.Second // how long a machine is let wait for an image before it is told to ask again
	imageTurn = 30 * time.Second // how long it waits for its turn: with the time before, less than it waits for the head of an answer
	takeWait  = time.Minute      // how long it may take nothing before it loses its place
)

// files serves the files of a directory one by one, and no list of what there is.
func (s *Server) files(dir fs.FS) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if info, err := fs.Stat(dir, name); err != nil || !info.Mode().IsRegular() {
			refuse(w, fault.New(fault.NotFound, "there is no such file"))
			return
		}
		s.transfer(r.Context(), w, r, func(w http.ResponseWriter) {
			http.ServeFileFS(w, r, dir, name)
		})
	}
}

// image serves an image whose bytes were checked.
func (s *Server) image(w http.ResponseWriter, r *http.Request) {
	digest, err := cache.ParseDigest(r.PathValue("digest"))
	if err != nil {
		refuse(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), fetchWait)
	defer cancel()
	file, err := s.Images.Get(ctx, digest, r.URL.Query().Get("from"))
	if err != nil {
		s.Logger.Warn("no image for a machine", "digest", digest, "machine", machineOf(r), "error", err)
		if errors.Is(err, context.DeadlineExceeded) { // it is on its way here
			refuse(w, err)
		} else {
			refuseFor(w, err, "") // asking again will not help: the machine may go to the source
		}
		return
	}
	defer file.Close() //nolint:errcheck // it was read
	turn, cancelTurn := context.WithTimeout(r.Context(), imageTurn)
	defer cancelTurn()
	s.transfer(turn, w, r, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("ETag", `"`+digest+`"`)
		http.ServeContent(w, r, "", time.Time{}, file)
	})
}

// transfer sends something large, when it is the machine's turn, which has to come while turn goes on, and no faster than the bound.
func (s *Server) transfer(turn context.Context, w http.ResponseWriter, r *http.Request, send func(http.ResponseWriter)) {
	if s.Transfers != nil {
		leave, err := s.Transfers.Enter(turn, machineOf(r))
		if err != nil {
			s.Logger.Warn("a transfer is refused", "machine", machineOf(r), "error", err)
			refuse(w, err)
			return
		}
		defer leave()
	}
	paced := &pacedWriter{ResponseWriter: w, control: http.NewResponseController(w), ctx: r.Context(), server: s}
	defer paced.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // a connection without deadlines has none
	send(paced)
}

func machineOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// pacedWriter writes no faster than the bound, to a machine that goes on reading.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context
	server  *Server
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	if err := w.server.Rate.Take(w.ctx, len(p)); err != nil {
		return 0, err
	}
	if err := w.control.SetWriteDeadline(time.Now().Add(takeWait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}
