package lab

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/adapters/sim"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/domain/profile/builtin"
)

// OSName is what the image host@1 calls itself.
const OSName = "labos 1"

const (
	imageBytes = 256 << 10
	diskBytes  = 8 << 20
)

// authority is the fingerprint of metald's CA, as it said.
func (l *Lab) authority() string {
	l.T.Helper()
	var found []string
	l.must(Poll(startPatience, "metald to tell its authority", func() error { // it answers a moment before it says that it does
		if found = regexp.MustCompile(`authority=([0-9a-f]{64})`).FindStringSubmatch(l.Planes[0].Said()); found == nil {
			return fault.New(fault.NotFound, "it has not said it")
		}
		return nil
	}))
	return found[1]
}

// estate makes a tenant with a site and a pool, profiles with little patience, and an image.
func (l *Lab) estate() {
	l.T.Helper()
	ctx := l.T.Context()
	public, private, err := ed25519.GenerateKey(nil)
	l.must(err)
	der, err := x509.MarshalPKIXPublicKey(public)
	l.must(err)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	tenant, err := l.Client.CreateTenant(ctx, contract.NewTenant{Name: "acme", Policy: contract.TenantPolicy{
		ImageSigners: []contract.ImageSigner{{Name: "release", PublicKey: key}},
	}})
	l.must(err)
	site, err := l.Client.CreateSite(ctx, contract.NewSite{Tenant: tenant.ID, Name: "lab"})
	l.must(err)
	pool, err := l.Client.CreatePool(ctx, contract.NewPool{Tenant: tenant.ID, Site: site.ID, Name: "gpu", Policy: l.options.Pool})
	l.must(err)
	l.Tenant, l.Site, l.Pool = tenant.ID, site.ID, pool.ID
	l.hurriedProfiles()

	image := l.options.Image
	if image == nil {
		image = sim.OSImage(imageBytes, OSName)
	}
	l.must(os.Mkdir(filepath.Join(l.dir, "images"), 0o700))
	l.must(os.WriteFile(filepath.Join(l.dir, "images", "os.raw"), image, 0o600))
	l.images = freeAddressOf(l.T, l.options.Host)
	sum := sha256.Sum256(image)
	l.Image, err = l.Client.RegisterImage(ctx, contract.NewImage{
		Tenant: l.Tenant, Name: "host", Version: "1", Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: int64(len(image)), Format: "raw",
		URL: "http://" + l.seen(l.images) + "/os.raw", Signature: ed25519.Sign(private, sum[:]),
	})
	l.must(err)
}

// hurriedProfiles are the shipped ones, as the tenant's own: what they do is the same, with less patience.
func (l *Lab) hurriedProfiles() {
	l.T.Helper()
	all, err := builtin.Profiles()
	l.must(err)
	for _, doc := range all {
		text, err := json.Marshal(doc)
		l.must(err)
		l.CreateProfile(text, func(step map[string]any) {
			switch step["use"] {
			case "burnin.cpu", "burnin.memory", "burnin.disk", "burnin.gpu":
				step["with"] = map[string]any{"bytes": diskBytes / 4} // one pass
			case "metal.ensureRamdisk", "boot.kexec", "wait.agentJoined":
				step["timeout"] = l.options.RamdiskWithin.String()
			case "disk.wipe":
				step["timeout"] = l.options.WipeWithin.String()
			}
			if step["retryDelay"] != nil {
				step["retryDelay"] = "1s"
			}
			if l.options.Profiles != nil {
				l.options.Profiles(step)
			}
		})
	}
}

// CreateProfile stores a profile of the tenant, after each of its steps was changed.
func (l *Lab) CreateProfile(document []byte, change func(step map[string]any)) {
	l.T.Helper()
	var doc map[string]any
	l.must(json.Unmarshal(document, &doc))
	for _, phase := range []string{"steps", "cleanup"} {
		steps, _ := doc[phase].([]any)
		for _, step := range steps {
			change(step.(map[string]any))
			if armed, ok := step.(map[string]any)["onFailure"].(map[string]any); ok {
				change(armed)
			}
		}
	}
	text, err := json.Marshal(maps.Clone(doc))
	l.must(err)
	_, err = l.Client.CreateProfile(l.T.Context(), l.Tenant, text)
	l.must(err)
}

// site starts the site's agent and the simulated machines.
func (l *Lab) site() {
	l.T.Helper()
	token, err := l.Client.CreateJoinToken(l.T.Context(), contract.NewJoinToken{Role: "site", Site: l.Site})
	l.must(err)
	l.JoinToken = token.Token
	boot := freeAddressOf(l.T, l.options.Host)
	l.Boot = "http://" + l.seen(boot)
	l.SiteAgent = newProgram(l.T, "bcd", nil, append([]string{
		"site", "--gateway", l.Gateway, "--ca-sha256", l.CA, "--token-file", l.file("join-token", token.Token),
		"--state-dir", filepath.Join(l.dir, "bcd"), "--boot-listen", boot, "--boot-url", l.Boot, "--boot-gateway", l.gatewaySeen(),
		"--boot-media-url", "http://" + boot,
	}, l.options.SiteFlags...)...)
	l.SiteAgent.answers = func() error { return listening(boot) }
	l.SiteAgent.Start()
	l.boots = []string{l.Boot}
	for i, place := range l.options.siteAgents() {
		l.anotherSiteAgent(i+2, place)
	}
	if l.options.Machines > 0 {
		l.simulate()
	} else {
		l.serveImages()
	}
	l.must(Poll(time.Minute, "the site's agent to join", func() error {
		for agent, err := range l.Client.Agents(l.T.Context(), l.Site, "", "site") {
			if err != nil || agent.Connected {
				return err
			}
		}
		return fault.New(fault.Unavailable, "it is not connected")
	}))
}

// simulate starts the simulated machines.
func (l *Lab) simulate() {
	l.T.Helper()
	l.control = FreeAddress(l.T)
	l.Sim = newProgram(l.T, "metalsim", nil, append([]string{
		"--machines", strconv.Itoa(l.options.Machines), "--boot-url", strings.Join(l.boots, ","), "--control", l.control, "--verbose",
		"--disk-bytes", strconv.Itoa(diskBytes), "--images", filepath.Join(l.dir, "images"), "--images-listen", l.images,
	}, l.options.SimFlags...)...)
	l.Sim.answers = func() error { return listening(l.control) }
	l.Sim.Start()
}

// serveImages is what metalsim does where it runs.
func (l *Lab) serveImages() {
	l.T.Helper()
	listener, err := (&net.ListenConfig{}).Listen(l.T.Context(), "tcp", l.images)
	l.must(err)
	server := &http.Server{Handler: http.FileServer(http.Dir(filepath.Join(l.dir, "images"))), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	l.T.Cleanup(func() {
		_ = server.Close() // nobody fetches any more
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			l.T.Errorf("the server of images: %v", err)
		}
	})
}

func (l *Lab) must(err error) {
	l.T.Helper()
	if err != nil {
		l.T.Fatal(err)
	}
}
