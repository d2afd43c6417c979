package client

import (
	"errors"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/better-compute/metal/domain/fault"
)

// A control plane whose certificate nobody known signed: what to do is said, and nothing is tried again.
func TestUnknownAuthority(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	c, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.WhoAmI(t.Context())
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.Unavailable || !strings.Contains(f.Remedy, "--ca-file") {
		t.Errorf("%v", err)
	}
}
