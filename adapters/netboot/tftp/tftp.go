// Package tftp serves the iPXE programs to firmware that knows nothing better: read only, from one directory.
package tftp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"github.com/pin/tftp/v3"

	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/domain/fault"
)

// Port is where firmware asks.
const Port = 69

// Server serves files.
type Server struct {
	Files     fs.FS       // of which nothing outside can be named; os.Root.FS keeps links in too
	Serves    func() bool // whether this server of several answers now; nil: it is alone
	Transfers *limit.Transfers
	Rate      *limit.Rate
	Logger    *slog.Logger
}

// Firmware repeats a packet after a second or more; these many repetitions in a row mean that it is gone.
const (
	answerWithin = 2 * time.Second
	repetitions  = 5
)

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	server := tftp.NewServer(func(name string, to io.ReaderFrom) error { return s.read(ctx, name, to) }, nil)
	server.SetTimeout(answerWithin)
	server.SetRetries(repetitions)
	server.SetBackoff(func(int) time.Duration { return 0 }) // the time-out was the pause
	stopped := context.AfterFunc(ctx, server.Shutdown)      // which waits for machines that may be gone: nobody waits for it
	err := server.Serve(conn)
	if stopped() {
		_ = conn.Close() // the error below says why
		return fault.Wrap(err, fault.Unavailable, "the TFTP server ended: %v", err)
	}
	return nil
}

// The errors that firmware is told; they name nothing of this host.
var (
	errNoFile = errors.New("there is no such file")
	errBusy   = errors.New("too many transfers, ask again")
	errOther  = errors.New("another server answers, ask again")
)

// read sends one file. The library holds a socket open until something is sent, so that each way out sends something.
func (s *Server) read(ctx context.Context, name string, to io.ReaderFrom) error {
	transfer, ok := to.(tftp.OutgoingTransfer)
	if !ok {
		return errNoFile
	}
	remote := transfer.RemoteAddr()
	logger := s.Logger.With("file", name, "machine", remote.IP.String())
	if s.Serves != nil && !s.Serves() {
		logger.Debug("TFTP refuses a transfer: another server of this site answers")
		return errOther
	}
	leave, err := s.Transfers.Enter(ctx, remote.IP.String())
	if err != nil {
		logger.Warn("TFTP refuses a transfer", "error", err)
		return errBusy
	}
	defer leave()
	file, size, err := s.open(name)
	if err != nil {
		logger.Warn("TFTP has no such file", "error", err)
		return errNoFile
	}
	defer file.Close() //nolint:errcheck // it was read
	transfer.SetSize(size)
	began := time.Now()
	n, err := to.ReadFrom(s.Rate.Reader(ctx, file))
	if err != nil {
		logger.Warn("a TFTP transfer ended early", "bytes", n, "error", err) // some firmware asks for the size only
		return err
	}
	logger.Info("a file went out by TFTP", "bytes", n, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// open finds a regular file. Firmware writes names with a slash before them, or with backslashes.
func (s *Server) open(name string) (fs.File, int64, error) {
	clean := strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, `\`, "/")), "/")
	info, err := fs.Stat(s.Files, clean)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, errNoFile
	}
	file, err := s.Files.Open(clean)
	return file, info.Size(), err
}

// Listen opens the server's port.
func Listen(ctx context.Context, address string) (*net.UDPConn, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", address)
	if errors.Is(err, os.ErrPermission) {
		return nil, fault.Wrap(err, fault.InvalidConfig, "%s needs root, or the capability NET_BIND_SERVICE", address).
			WithRemedy("run it as root, or give it the capability, such as with AmbientCapabilities= of its systemd unit")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidConfig, "the TFTP server can't listen: %v", err)
	}
	udp, ok := conn.(*net.UDPConn)
	if !ok {
		_ = conn.Close() // nobody has it
		return nil, fault.New(fault.Internal, "%s is no UDP address", address)
	}
	return udp, nil
}
