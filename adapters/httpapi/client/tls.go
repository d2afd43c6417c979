package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"os"

	"github.com/better-compute/metal/domain/fault"
)

// TLS says whom to trust and who to be, over the system's defaults.
type TLS struct {
	CAFile   string // PEM certificates to trust instead of the system's
	CertFile string // PEM, of the client, with KeyFile
	KeyFile  string
}

func (t TLS) transport() (*http.Transport, error) {
	defaults, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // somebody replaced it: nothing here depends on its settings
		defaults = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	transport := defaults.Clone()
	transport.MaxIdleConnsPerHost = 64
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidInput, "the certificates to trust cannot be read: %s", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fault.New(fault.InvalidInput, "%s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidInput, "the client's certificate cannot be used: %s", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = config
	return transport, nil
}

func asURLError(err error, to **url.Error) bool { return errors.As(err, to) }
