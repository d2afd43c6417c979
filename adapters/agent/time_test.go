package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/metal/domain/fault"
)

// The gateway's word counts whatever the machine's own clock says, as long as it is the gateway's and its certificate is good
// at the time that it tells.
func TestTheGatewayTellsTheTime(t *testing.T) {
	caKey, ca := newCA(t)
	_, other := newCA(t)
	now := time.Now().Truncate(time.Second)
	date := func(d time.Duration) string { return now.Add(d).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		name        string
		from, until time.Duration // of the certificate, from now
		date        string
		ca          *x509.Certificate
		host        string
		want        fault.Code
	}{
		{"as it is", -time.Minute, time.Hour, date(0), ca, "127.0.0.1", ""},
		{"the machine is years ahead", -30 * time.Minute, -10 * time.Minute, date(-20 * time.Minute), ca, "127.0.0.1", ""},
		{"the machine is behind", time.Hour, 2 * time.Hour, date(90 * time.Minute), ca, "127.0.0.1", ""},
		{"made a moment ago, by its own clock", time.Minute, time.Hour, date(30 * time.Second), ca, "127.0.0.1", ""},
		{"expired", -30 * time.Minute, -10 * time.Minute, date(0), ca, "127.0.0.1", fault.Unavailable},
		{"not good yet", time.Hour, 2 * time.Hour, date(0), ca, "127.0.0.1", fault.Unavailable},
		{"no time", -time.Minute, time.Hour, "soon", ca, "127.0.0.1", fault.Unavailable},
		{"of another CA", -time.Minute, time.Hour, date(0), other, "127.0.0.1", fault.Unauthenticated},
		{"of another name", -time.Minute, time.Hour, date(0), ca, "192.0.2.1", fault.Unauthenticated},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			check(t, err)
			der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
				SerialNumber: big.NewInt(2), NotBefore: now.Add(test.from), NotAfter: now.Add(test.until),
				IPAddresses: []net.IP{net.ParseIP(test.host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}, ca, key.Public(), caKey)
			check(t, err)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", test.date)
				w.WriteHeader(http.StatusNotFound)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key}}}
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			told, err := GatewayTime(t.Context(), server.URL, fingerprint(test.ca.Raw))
			switch {
			case test.want != "":
				if fault.CodeOf(err) != test.want {
					t.Errorf("got %v, %v", told, err)
				}
			case err != nil || told.UTC().Format(http.TimeFormat) != test.date:
				t.Errorf("got %v, %v", told, err)
			}
		})
	}
}

func TestAGatewayThatIsAwayTellsNoTime(t *testing.T) {
	if told, err := GatewayTime(t.Context(), "https://127.0.0.1:1", strings.Repeat("a", 64)); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("got %v, %v", told, err)
	}
}
