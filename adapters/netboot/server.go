package netboot

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// Server answers machines that boot from the network.
type Server struct {
	Entries *Entries
	Gateway string // where the ramdisk's agent joins
	CA      string // SHA-256 of the CA's certificate
	URL     string // of this server, as machines reach it
	Files   fs.FS  // kernels and ramdisks that entries name without a URL; nil: none
	Logger  *slog.Logger
}

// The paths below URL.
const (
	pathScript = "/boot/"
	pathToken  = "/boot/token"
	pathFiles  = "/files/"
)

// TokenRequest asks for the join token of a boot entry.
type TokenRequest struct {
	Ref         string   `json:"ref"`
	MACs        []string `json:"macs"`
	ProductUUID string   `json:"productUuid,omitempty"`
}

// TokenAnswer has it.
type TokenAnswer struct {
	Token string `json:"token"`
}

// Handler serves GET /boot/{mac}, POST /boot/token and GET /files/{name}.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathScript+"{mac}", s.script)
	mux.HandleFunc("POST "+pathToken, s.token)
	if s.Files != nil {
		mux.HandleFunc("GET "+pathFiles+"{name...}", s.file)
	}
	return mux
}

// file serves one file, and no list of what there is.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if info, err := fs.Stat(s.Files, name); err != nil || !info.Mode().IsRegular() {
		refuse(w, fault.New(fault.NotFound, "there is no such file"))
		return
	}
	http.ServeFileFS(w, r, s.Files, name) //nolint:gosec // an fs.FS has nothing above its root
}

func (s *Server) script(w http.ResponseWriter, r *http.Request) {
	mac := r.PathValue("mac")
	boot := Boot{Exit: true}
	if entry, ref, ok := s.Entries.Find(mac); ok {
		boot = Boot{
			Kernel: s.located(entry.Kernel), Initrd: s.located(entry.Initrd), Args: entry.Args,
			Gateway: s.Gateway, CA: s.CA, Site: s.URL, Ref: ref,
		}
		s.Logger.Info("a machine boots from the network", "mac", mac, "node", entry.NodeID)
	} else {
		s.Logger.Debug("a machine without a boot entry goes on to its next boot device", "mac", mac)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, boot.Script()) // a machine that has gone asks again
}

// located makes a URL of a file's name.
func (s *Server) located(where string) string {
	if u, err := url.Parse(where); err == nil && u.Host != "" {
		return where
	}
	return strings.TrimSuffix(s.URL, "/") + pathFiles + strings.TrimPrefix(where, "/")
}

const requestMost = 64 << 10

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	var ask TokenRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestMost)).Decode(&ask); err != nil {
		refuse(w, fault.New(fault.InvalidInput, "the request is not of the form {ref, macs, productUuid}"))
		return
	}
	token, err := s.Entries.TakeToken(ask.Ref, ask.MACs)
	if err != nil {
		s.Logger.Warn("no join token for a machine", "macs", ask.MACs, "productUuid", ask.ProductUUID, "error", err)
		refuse(w, err)
		return
	}
	s.Logger.Info("a machine fetched its join token", "macs", ask.MACs, "productUuid", ask.ProductUUID)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(TokenAnswer{Token: token}) // a machine that has gone boots again, under a fresh entry
}

// problem is a problem document (RFC 9457).
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func refuse(w http.ResponseWriter, err error) {
	f := fault.New(fault.Internal, "something went wrong inside")
	_ = errors.As(err, &f)
	info := fault.Info(f.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(info.HTTP)
	_ = json.NewEncoder(w).Encode(problem{info.HTTP, info.When, string(f.Code), f.Message, f.Remedy}) // as above
}
