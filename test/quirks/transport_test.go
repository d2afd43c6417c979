package quirks

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/metal/adapters/bmc"
	"github.com/better-compute/metal/adapters/bmc/redfish"
	"github.com/better-compute/metal/domain/claim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/node"
)

// TestTransport is section 1 of the list, below Redfish.
func TestTransport(t *testing.T) {
	for name, form := range map[string]string{"R04_with_slash_only": "/redfish/v1/", "R04_without_slash_only": "/redfish/v1"} {
		for kind, status := range map[string]int{"_401": 401, "_404": 404} {
			row(t, name+kind, func(t *testing.T) {
				r := start(t)
				r.On("GET", Root, func(x *Exchange) *Answer {
					if x.Path != form {
						return Problem(status, "Base.1.8.ResourceMissingAtURI", "There is no such resource.")
					}
					return x.Next()
				})
				must(t, r.do(powerOnly))
				must(t, r.do(powerOnly))
				wrong := 0
				for _, q := range r.Requests("GET", Root) {
					if q.Path != form {
						wrong++
					}
				}
				atMost(t, "reads of the form that is not there", wrong, 1)
			})
		}
	}

	row(t, "R14_no_compression_is_offered", func(t *testing.T) {
		r := start(t)
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
		for _, q := range r.Requests("", "") {
			if e := q.Header.Get("Accept-Encoding"); strings.Contains(e, "gzip") {
				t.Errorf("%s %s offers %q", q.Method, q.Path, e)
			}
		}
	})

	row(t, "R14_a_tag_of_compressed_content", func(t *testing.T) {
		r := start(t)
		r.On("GET", System, Tagged(`"abc-gzip"`))
		r.On("PATCH", System, Guarded(412, `"abc"`))
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
	})

	for name, protocol := range map[string]string{"R16_http2_only": "h2", "R16_http1_only": "http/1.1"} {
		row(t, name, func(t *testing.T) {
			r := start(t, func(s *Server) {
				s.HTTP2 = protocol == "h2"
				s.TLS = &tls.Config{
					Certificates: []tls.Certificate{Certificate{}.Make(t)}, NextProtos: []string{protocol},
					VerifyConnection: func(c tls.ConnectionState) error {
						if protocol == "h2" && c.NegotiatedProtocol != protocol {
							return net.ErrClosed
						}
						return nil
					},
				}
			})
			must(t, r.do(powerOnly))
		})
	}

	row(t, "R18_ipv6", func(t *testing.T) {
		r := start(t, func(s *Server) { s.Listen = "[::1]:0" })
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.target.Address, "https://"))
		for _, form := range []string{"[::1]:" + port, "https://[::1]:" + port, "https://[0:0::1]:" + port + "/redfish/v1/"} {
			address, err := claim.ParseAddress(form)
			must(t, err)
			r.target.Address = address.URL
			must(t, r.do(powerOnly))
		}
	})

	row(t, "R18_ipv6_that_nobody_answers", func(t *testing.T) {
		s := Start(t)
		r := attach(t, s, redfish.Options{ConnectTimeout: 100 * time.Millisecond})
		for _, form := range []string{"2001:db8::1", "fe80::1%eth0", "[fe80::1%25eth0]:8443"} {
			address, err := claim.ParseAddress(form)
			must(t, err)
			r.target.Address = address.URL
			wantCode(t, r.do(powerOnly), fault.Unavailable, fault.Timeout)
		}
	})

	row(t, "R106_no_address", func(t *testing.T) {
		r := start(t)
		r.target.Address = ""
		wantCode(t, r.do(powerOnly), fault.InvalidInput)
	})

	row(t, "R13_a_handshake_that_never_ends", func(t *testing.T) {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { _ = silent.Close() })
		r := attach(t, Start(t), redfish.Options{ConnectTimeout: 100 * time.Millisecond, RequestTimeout: time.Minute})
		r.target.Address = "https://" + silent.Addr().String()
		wantCode(t, r.do(powerOnly), fault.Unavailable, fault.Timeout)
		r.inTime(t)
	})

	row(t, "R21_every_request_says_its_version", func(t *testing.T) {
		r := start(t)
		r.On("", "", func(x *Exchange) *Answer {
			if x.Header.Get("OData-Version") != "4.0" || !strings.Contains(x.Header.Get("Accept"), "application/json") {
				return Problem(412, "Base.1.8.HeaderInvalid", "The OData-Version header is missing.")
			}
			return x.Next()
		})
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
		_, err = r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		_, err = r.insert("https://images.example/a.iso")
		must(t, err)
		r.inspect()
	})
}

// TestTrust is R17: each mode of trust with the certificates that it takes and refuses.
func TestTrust(t *testing.T) {
	authority := Certificate{CA: true}.Make(t)
	signed := Certificate{Signer: &authority}.Make(t)
	own := Certificate{}.Make(t)
	cases := map[string]trust{
		"pinned":                     pinned(own),
		"pinned_and_expired":         pinned(Certificate{Expired: true}.Make(t)),
		"pinned_with_another_name":   pinned(Certificate{Name: "other.example"}.Make(t)),
		"pinned_to_another":          {own, node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: fingerprint(signed)}, bmc.CertificateChanged},
		"first_use":                  {own, node.TLSPolicy{Mode: node.TLSPinOnFirstUse}, ""},
		"second_use_changed":         {own, node.TLSPolicy{Mode: node.TLSPinOnFirstUse, Fingerprint: fingerprint(signed)}, bmc.CertificateChanged},
		"ca":                         {signed, node.TLSPolicy{Mode: node.TLSCustomCA, CA: PEM(authority)}, ""},
		"ca_of_another":              {own, node.TLSPolicy{Mode: node.TLSCustomCA, CA: PEM(authority)}, bmc.CertificateUntrusted},
		"ca_expired":                 {Certificate{Signer: &authority, Expired: true}.Make(t), node.TLSPolicy{Mode: node.TLSCustomCA, CA: PEM(authority)}, bmc.CertificateUntrusted},
		"ca_with_another_name":       {Certificate{Signer: &authority, Name: "other.example"}.Make(t), node.TLSPolicy{Mode: node.TLSCustomCA, CA: PEM(authority)}, bmc.CertificateUntrusted},
		"system_ca_and_self_signed":  {own, node.TLSPolicy{Mode: node.TLSSystemCA}, bmc.CertificateUntrusted},
		"insecure_takes_self_signed": {own, node.TLSPolicy{Mode: node.TLSInsecure}, ""},
	}
	for name, c := range cases {
		row(t, "R17_"+name, func(t *testing.T) {
			r := start(t, func(s *Server) { s.TLS = &tls.Config{Certificates: []tls.Certificate{c.shown}} })
			r.target.TLS = c.policy
			err := r.do(powerOnly)
			if c.reason == "" {
				must(t, err)
				return
			}
			wantReason(t, err, c.reason)
			same(t, "requests to a controller that is not trusted", len(r.Requests("", "")), 0)
		})
	}

	for name, c := range map[string]struct {
		newest, oldest uint16 // that the controller has, that the driver takes
		suites         []uint16
		taken          bool
	}{
		"R17_old_ciphers":            {newest: tls.VersionTLS12, suites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}, taken: true},
		"R17_tls_1.0_is_refused":     {newest: tls.VersionTLS10},
		"R17_tls_1.0_where_it_is_ok": {newest: tls.VersionTLS10, oldest: tls.VersionTLS10, taken: true},
	} {
		row(t, name, func(t *testing.T) {
			s := New(t)
			s.Machine()
			s.TLS = &tls.Config{
				Certificates: []tls.Certificate{Certificate{RSA: true}.Make(t)}, CipherSuites: c.suites,
				MinVersion: tls.VersionTLS10, MaxVersion: c.newest,
			}
			s.Run()
			err := attach(t, s, redfish.Options{MinTLS: c.oldest}).do(powerOnly)
			if c.taken {
				must(t, err)
			} else {
				wantCode(t, err, fault.Unavailable, fault.DriverError)
			}
		})
	}

	row(t, "R17_first_use_tells_what_it_saw", func(t *testing.T) {
		r := start(t)
		r.target.TLS = node.TLSPolicy{Mode: node.TLSPinOnFirstUse}
		must(t, r.do(func(_ context.Context, m machine) error {
			same(t, "fingerprint", m.Fingerprint(), r.Fingerprint())
			return nil
		}))
	})

	row(t, "R17_a_key_that_changes_after_first_use", func(t *testing.T) {
		var updated atomic.Bool
		second := tls.Config{Certificates: []tls.Certificate{Certificate{}.Make(t)}}
		r := start(t, func(s *Server) {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if updated.Load() {
					return &second, nil
				}
				return nil, nil
			}}
		})
		r.target.TLS = node.TLSPolicy{Mode: node.TLSPinOnFirstUse}
		must(t, r.do(powerOnly))
		updated.Store(true)
		r.On("GET", System, First(1, Drop)) // the update ends what is open
		wantReason(t, r.do(powerOnly), bmc.CertificateChanged)
	})

	row(t, "R17_a_key_that_changes_under_a_connection", func(t *testing.T) {
		r := start(t)
		must(t, r.do(powerOnly))
		r.target.TLS.Fingerprint = fingerprint(authority) // the pin was moved; nothing that is open may serve it
		wantReason(t, r.do(powerOnly), bmc.CertificateChanged)
	})
}

// trust is a certificate that is shown, what is trusted, and why it is refused; empty where it is trusted.
type trust struct {
	shown  tls.Certificate
	policy node.TLSPolicy
	reason bmc.Reason
}

// pinned is a certificate that is the pinned one: then neither its name nor its time matters.
func pinned(c tls.Certificate) trust {
	return trust{c, node.TLSPolicy{Mode: node.TLSPinned, Fingerprint: fingerprint(c)}, ""}
}

// TestTags is section 2 of the list.
func TestTags(t *testing.T) {
	setBoot := func(t *testing.T, r *rig) {
		t.Helper()
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		must(t, err)
		same(t, "target", r.override()["BootSourceOverrideTarget"], any("Pxe"))
	}
	// guarded is a controller that shows one tag and takes a change only with another; tries is how many that may take.
	guarded := func(tries int, show Rule, status int, want ...string) func(t *testing.T) {
		return func(t *testing.T) {
			r := start(t)
			r.On("GET", System, show)
			r.On("PATCH", System, Guarded(status, want...))
			setBoot(t, r)
			atMost(t, "changes that were sent", len(r.Requests("PATCH", System)), tries)
		}
	}
	inBody := func(tag string) Rule {
		return func(x *Exchange) *Answer {
			a := x.Next().With("ETag", "")
			a.Body.(Doc)["@odata.etag"] = tag
			return a
		}
	}
	row(t, "R25_required_428", guarded(1, Tagged(`"7"`), http.StatusPreconditionRequired, `"7"`))
	row(t, "R25_required_412", guarded(1, Tagged(`"7"`), http.StatusPreconditionFailed, `"7"`))
	row(t, "R25_in_the_body_only", guarded(1, inBody(`"7"`), http.StatusPreconditionRequired, `"7"`))
	row(t, "R28_weak_as_given", guarded(1, Tagged(`W/"7"`), http.StatusPreconditionFailed, `W/"7"`))
	row(t, "R28_weak_told_strong_wanted", guarded(5, Tagged(`W/"7"`), http.StatusPreconditionFailed, `"7"`))
	row(t, "R28_none_is_taken", guarded(5, Tagged(`W/"7"`), http.StatusPreconditionFailed, ""))
	row(t, "R29_an_empty_header", guarded(1, Tagged(`""`), http.StatusPreconditionFailed, ""))
	row(t, "R29_an_empty_property", guarded(1, inBody(""), http.StatusPreconditionFailed, ""))
	row(t, "R30_bare_in_the_body", guarded(1, inBody("1718082924"), http.StatusPreconditionFailed, `"1718082924"`))
	row(t, "R30_weak_in_the_body", guarded(1, inBody(`W/"9B9F7D67"`), http.StatusPreconditionFailed, `W/"9B9F7D67"`))

	row(t, "R27_a_tag_that_moves", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, First(2, Always(Problem(412, "Base.1.8.PreconditionFailed", "The ETag did not match."))))
		setBoot(t, r)
	})

	row(t, "R27_a_tag_that_moves_for_ever", func(t *testing.T) {
		r := start(t)
		r.On("PATCH", System, Always(Problem(412, "Base.1.8.PreconditionFailed", "The ETag did not match.")))
		_, err := r.boot(bmc.BootOverride{Device: bmc.BootNetwork})
		wantReason(t, err, bmc.Refused, bmc.BootOverrideNotApplied)
		atMost(t, "changes that were sent", len(r.Requests("PATCH", System)), 8)
	})

	row(t, "R31_actions_have_no_tag", func(t *testing.T) {
		r := start(t)
		r.On("POST", "", func(x *Exchange) *Answer {
			if _, tagged := x.Header["If-Match"]; tagged {
				return Problem(412, "Base.1.8.PreconditionFailed", "The ETag did not match.")
			}
			return x.Next()
		})
		_, err := r.power(node.ActionOff, bmc.PowerOptions{})
		must(t, err)
		_, err = r.insert("https://images.example/a.iso")
		must(t, err)
		must(t, r.eject())
	})
}

// override is the system's boot override as it stands.
func (r *rig) override() Doc { return r.Get(System)["Boot"].(Doc) }
