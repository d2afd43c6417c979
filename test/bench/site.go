package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/profile/builtin"
)

const (
	siteDiskBytes  = 8 << 20
	siteImageBytes = 256 << 10
)

// site is a place with its agent and simulated machines that answer at once.
type site struct {
	tenant, pool string
	agent, sim   *program
	machines     []sim.Listed
	client       *client.Client
}

// openSite makes a tenant with a site and a pool, and starts the site's agent and the machines.
func (b *bench) openSite(ctx context.Context, p *plane, machines int) (_ *site, err error) {
	s := &site{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.client, err = p.client(); err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	signer := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	tenant, err := s.client.CreateTenant(ctx, contract.NewTenant{Name: "bench", Policy: contract.TenantPolicy{
		ImageSigners: []contract.ImageSigner{{Name: "bench", PublicKey: signer}},
	}})
	if err != nil {
		return nil, err
	}
	place, err := s.client.CreateSite(ctx, contract.NewSite{Tenant: tenant.ID, Name: "bench"})
	if err != nil {
		return nil, err
	}
	pool, err := s.client.CreatePool(ctx, contract.NewPool{Tenant: tenant.ID, Site: place.ID, Name: "bench"})
	if err != nil {
		return nil, err
	}
	s.tenant, s.pool = tenant.ID, pool.ID
	if err := s.hurry(ctx); err != nil {
		return nil, err
	}
	if err := b.startSite(ctx, p, s, place.ID, machines); err != nil {
		return nil, err
	}
	return s, s.image(ctx, private)
}

// hurry makes the shipped commissioning the tenant's own, with one short pass over each disk: machines that answer at once
// have nothing to burn in.
func (s *site) hurry(ctx context.Context) error {
	all, err := builtin.Profiles()
	if err != nil {
		return err
	}
	for _, doc := range all {
		if doc.ID != "metal-commission" {
			continue
		}
		for i := range doc.Steps {
			if doc.Steps[i].Use == "burnin.disk" {
				doc.Steps[i].With = fmt.Appendf(nil, `{"bytes": %d}`, siteDiskBytes/4)
			}
		}
		text, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		if _, err := s.client.CreateProfile(ctx, s.tenant, text); err != nil {
			return err
		}
	}
	return nil
}

// startSite starts the agent and the machines, and waits until the agent has joined and the machines are listed.
func (b *bench) startSite(ctx context.Context, p *plane, s *site, place string, machines int) error {
	token, err := s.client.CreateJoinToken(ctx, contract.NewJoinToken{Role: "site", Site: place})
	if err != nil {
		return err
	}
	boot, err := freePort(ctx)
	if err != nil {
		return err
	}
	secret, state := filepath.Join(b.dir, "join-token"), filepath.Join(b.dir, "bcd-"+strconv.Itoa(b.started))
	if err := os.WriteFile(secret, []byte(token.Token), 0o600); err != nil {
		return err
	}
	s.agent, err = b.program(ctx, nil, "bcd", "site", "--gateway", p.gateway, "--ca-sha256", p.authority, "--token-file", secret,
		"--state-dir", state, "--boot-listen", boot, "--boot-url", "http://"+boot)
	if err != nil {
		return err
	}
	images, list := filepath.Join(b.dir, "images"), filepath.Join(b.dir, "machines.json")
	if err := os.MkdirAll(images, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(images, "os.raw"), osImage(), 0o600); err != nil {
		return err
	}
	s.sim, err = b.program(ctx, nil, "metalsim", "--machines", strconv.Itoa(machines), "--boot-url", "http://"+boot,
		"--disk-bytes", strconv.Itoa(siteDiskBytes), "--images", images, "--control", "127.0.0.1:0", "--json", list)
	if err != nil {
		return err
	}
	if _, err := s.sim.said(ctx, regexp.MustCompile(`Ctrl-C`)); err != nil {
		return err
	}
	text, err := os.ReadFile(list)
	if err == nil {
		err = json.Unmarshal(text, &s.machines)
	}
	if err != nil {
		return err
	}
	_, err = s.agent.said(ctx, regexp.MustCompile(`msg=connected`))
	return err
}

func osImage() []byte { return sim.OSImage(siteImageBytes, "bench OS") }

// image registers host@1, which the shipped profile image-host writes.
func (s *site) image(ctx context.Context, key ed25519.PrivateKey) error {
	url, err := s.sim.said(ctx, regexp.MustCompile(`(http://\S+/os\.raw)`))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(osImage())
	_, err = s.client.RegisterImage(ctx, contract.NewImage{
		Tenant: s.tenant, Name: "host", Version: "1", Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: siteImageBytes, Format: "raw",
		URL: url[0], Signature: ed25519.Sign(key, sum[:]),
	})
	return err
}

// enroll hands a machine over.
func (s *site) enroll(ctx context.Context, m sim.Listed) (string, error) {
	n, err := s.client.Enroll(ctx, contract.Enrollment{
		Pool: s.pool, Name: m.Name, MACs: m.MACs, BMC: contract.BMCAccess{
			Address: m.BMC.Address, Credentials: contract.Credentials{Username: m.BMC.Username, Password: m.BMC.Password},
		},
	})
	if err != nil {
		return "", fmt.Errorf("enroll %s: %w", m.Name, err)
	}
	return n.ID, nil
}

// close ends the agent and the machines.
func (s *site) close() error {
	if s.client != nil {
		s.client.Close()
	}
	return errors.Join(s.sim.stop(), s.agent.stop())
}
