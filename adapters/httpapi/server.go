package httpapi

import (
	"net/http"
	"time"
)

// Server makes a server for handler with limits on what a caller may hold up: 10 s for the headers, 64 KiB of them, two
// minutes for an idle connection. Bodies are bounded by the handler, and so is each write: there is no write timeout, since
// followers of events stay.
func Server(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
