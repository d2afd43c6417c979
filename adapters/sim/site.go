package sim

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/better-compute/metal/adapters/agent"
	"github.com/better-compute/metal/adapters/sim/bmcsim"
	"github.com/better-compute/metal/domain/fault"
)

// Site is a number of machines with their controllers.
type Site struct {
	config   Config
	machines []*Machine

	ctx  context.Context // of everything that runs
	end  context.CancelCauseFunc
	busy sync.WaitGroup

	closing sync.Once

	mu        sync.Mutex
	bootURL   string
	listeners []net.Listener
	servers   []*http.Server
	started   bool
}

// New makes a site. Its controllers have their addresses, but serve from Start on. Close it in any case.
func New(config Config) (*Site, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	s := &Site{config: config, bootURL: config.BootURL}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	names := map[string]bool{}
	for i := range config.Machines {
		spec := config.fill(i)
		if names[spec.Name] {
			return nil, errors.Join(fault.New(fault.InvalidConfig, "two machines are called %s", spec.Name), s.Close())
		}
		names[spec.Name] = true
		if err := s.addMachine(i, spec); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// addMachine makes a machine, and gives its controller an address.
func (s *Site) addMachine(i int, spec MachineSpec) error {
	host, port, err := net.SplitHostPort(s.config.Listen)
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "%q is not host:port", s.config.Listen)
	}
	if first, err := strconv.Atoi(port); err != nil {
		return fault.New(fault.InvalidConfig, "%q is not a port", port)
	} else if first != 0 {
		port = strconv.Itoa(first + i)
	}
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "the controller of %s can't listen on %s", spec.Name, net.JoinHostPort(host, port))
	}
	s.listeners = append(s.listeners, listener)
	m, err := newMachine(s, spec)
	s.machines = append(s.machines, m)
	if err != nil {
		return err
	}
	m.host = listener.Addr().String()
	m.address = "https://" + m.host
	certificate, fingerprint, err := certificate(s.config.Seed, spec.Name, host)
	if err != nil {
		return err
	}
	m.fingerprint = fingerprint
	m.service, err = bmcsim.New(m, bmcsim.Options{Personality: spec.Personality, Now: s.config.Clock.Now, Rules: m.rules})
	if err != nil {
		return err
	}
	s.servers = append(s.servers, &http.Server{
		Handler: m.service,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
			CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, // controllers know no post-quantum exchange
		},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1, as most controllers
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	})
	return nil
}

// Start serves, and powers on what is on from the start. It does not wait; ctx ending is as a cut of the site's power.
func (s *Site) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ctx.Err() != nil {
		return fault.New(fault.InvalidState, "the site was started or closed before")
	}
	s.started = true
	stop := context.AfterFunc(ctx, func() { s.end(agent.ErrGone) })
	context.AfterFunc(s.ctx, func() { stop() })
	for i, server := range s.servers {
		s.busy.Go(func() {
			if err := server.ServeTLS(s.listeners[i], "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.config.Logger.Error("a simulated controller has ended", "machine", s.machines[i].spec.Name, "error", err)
			}
		})
	}
	for _, m := range s.machines {
		if m.spec.On {
			if err := m.Reset(bmcsim.On); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close cuts the power of every machine, ends the controllers, and waits for all of it.
func (s *Site) Close() error {
	s.end(agent.ErrGone)
	s.mu.Lock()
	for _, server := range s.servers {
		_ = server.Close() // connections end as they are
	}
	for _, l := range s.listeners {
		_ = l.Close() // those that never served
	}
	s.mu.Unlock()
	for _, m := range s.machines {
		m.mu.Lock()
		m.cutPower()
		l := m.life
		m.mu.Unlock()
		l.await()
	}
	s.busy.Wait()
	var failed error
	s.closing.Do(func() {
		for _, m := range s.machines {
			for _, d := range m.drives {
				failed = errors.Join(failed, d.close())
			}
		}
	})
	s.config.HTTP.CloseIdleConnections()
	return failed
}

// Machines lists the machines.
func (s *Site) Machines() []*Machine { return s.machines }

// Machine finds one by name.
func (s *Site) Machine(name string) (*Machine, bool) {
	for _, m := range s.machines {
		if m.spec.Name == name {
			return m, true
		}
	}
	return nil, false
}

// SetBootURL changes the boot server that DHCP would name.
func (s *Site) SetBootURL(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bootURL = url
}

func (s *Site) boots() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bootURL
}
