package netboot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/domain/fault"
)

// Server answers machines that boot from the network.
type Server struct {
	Entries *Entries
	Gateway string // where the ramdisk's agent joins
	CA      string // SHA-256 of the CA's certificate
	URL     string // of this server, as machines reach it
	Media   string // of this server, as controllers reach it; empty: URL
	Files   fs.FS  // kernels and ramdisks that entries name without a URL; nil: none
	Loaders fs.FS  // iPXE programs, for UEFI HTTP boot; nil: none
	Images  Images // nil: none are kept here
	Lease   *Lease // nil: this server is alone at its site
	Logger  *slog.Logger

	Transfers *limit.Transfers // nil: no bound
	Rate      *limit.Rate
}

// Images are kept near the machines, by digest.
type Images interface {
	// Get opens an image, fetching it from its source if it is not there. It waits as long as ctx lets it.
	Get(ctx context.Context, digest, from string) (*os.File, error)
}

// The paths below URL.
const (
	pathScript = "/boot/"
	pathToken  = "/boot/token"
	pathFiles  = "/files/"
	pathLoader = "/ipxe/"
	pathImages = "/images/"
	pathMedium = "/media/"
)

// ScriptURL is where iPXE finds the script of a machine.
func ScriptURL(server, mac string) string {
	return strings.TrimSuffix(server, "/") + pathScript + url.PathEscape(mac)
}

// LoaderURL is where firmware finds an iPXE program.
func LoaderURL(server, name string) string {
	return strings.TrimSuffix(server, "/") + pathLoader + strings.TrimPrefix(name, "/")
}

// ImageURL is where a site's server has an image, of digest sha256:<hex>, that comes from a source. It answers 503 with
// Retry-After while it fetches the image, and refuses sources that are not its operator's.
func ImageURL(server, digest, from string) string {
	return strings.TrimSuffix(server, "/") + pathImages + url.PathEscape(digest) + "?" + url.Values{"from": {from}}.Encode()
}

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

// Handler serves GET /boot/{mac} and POST /boot/token, and, as far as there are any, GET /files/{name},
// /media/{medium}/ramdisk.iso, /ipxe/{name} and /images/{digest}?from={url}.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathScript+"{mac}", s.script)
	mux.HandleFunc("POST "+pathToken, s.token)
	if s.Files != nil {
		mux.HandleFunc("GET "+pathFiles+"{name...}", s.files(s.Files))
		mux.HandleFunc("GET "+pathMedium+"{medium}/"+MediumFile, s.medium)
	}
	if s.Loaders != nil {
		mux.HandleFunc("GET "+pathLoader+"{name...}", s.loaders(s.files(s.Loaders)))
	}
	if s.Images != nil {
		mux.HandleFunc("GET "+pathImages+"{digest}", s.image)
	}
	return mux
}

func (s *Server) script(w http.ResponseWriter, r *http.Request) {
	mac := r.PathValue("mac")
	boot := Boot{Exit: true}
	entry, ref, ok := s.Entries.Find(mac)
	if !s.Lease.Held() || !ok && !s.Lease.knows() {
		s.Logger.Debug("a machine is not answered: this server has no boot lease, or not every boot entry yet", "mac", mac)
		refuse(w, errNotServing())
		return
	}
	if ok {
		boot = s.boot(entry, ref)
		boot.Port, _ = normal(mac) // it is the MAC of an entry
		for _, server := range Sites(boot.Site) {
			boot.Again = append(boot.Again, ScriptURL(server, boot.Port))
		}
		s.Logger.Info("a machine boots from the network", "mac", mac, "node", entry.NodeID)
	} else {
		s.Logger.Debug("a machine without a boot entry goes on to its next boot device", "mac", mac)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, boot.Script()) // a machine that has gone asks again
}

// boot is what a machine is told.
func (s *Server) boot(entry Entry, ref string) Boot {
	return Boot{
		Kernel: s.located(entry.Kernel), Initrd: s.located(entry.Initrd), Args: entry.Args,
		Gateway: s.Gateway, CA: s.CA, Site: s.Lease.sites(s.URL), Ref: ref,
	}
}

// loaders has iPXE programs go out only where a script would: they are how a boot begins. Files and images are not held back:
// nothing boots by them but what a script or an order has named, and what is under way goes on.
func (s *Server) loaders(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.Lease.Held() {
			refuse(w, errNotServing())
			return
		}
		serve(w, r)
	}
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
	if !s.Lease.Held() {
		refuse(w, errNotServing())
		return
	}
	token, err := s.Entries.TakeToken(ask.Ref, ask.MACs)
	if fault.CodeOf(err) == fault.NotFound && !s.Lease.knows() {
		err = errNotServing()
	}
	if err != nil {
		s.Logger.Warn("no join token for a machine", "macs", ask.MACs, "productUuid", ask.ProductUUID, "error", err,
			"cause", errors.Unwrap(err)) // the machine is not told of this host
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

func refuse(w http.ResponseWriter, err error) { refuseFor(w, err, "2") }

// refuseFor tells when to ask again, in seconds, where that may help; empty: it is not told.
func refuseFor(w http.ResponseWriter, err error, again string) {
	f := fault.New(fault.Internal, "something went wrong inside")
	_ = errors.As(err, &f)
	info := fault.Info(f.Code)
	w.Header().Set("Content-Type", "application/problem+json")
	if again != "" && (f.Code == fault.Unavailable || f.Code == fault.RateLimited) {
		w.Header().Set("Retry-After", again)
	}
	w.WriteHeader(info.HTTP)
	_ = json.NewEncoder(w).Encode(problem{info.HTTP, info.When, string(f.Code), f.Message, f.Remedy}) // as above
}
