package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/better-compute/metal/adapters/httpapi/client"
	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/tenant"
)

const (
	benchToken = "bench-0123456789abcdef0123456789abcdef"
	benchKey   = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

// plane is a metald of its own process, with a fleet in it.
type plane struct {
	*program
	url, dsn, gateway, authority string
	nodes                        []string
	http                         *http.Client
	database                     *pgxpool.Pool // the one it runs over
}

// startPlane runs metald over a fresh database.
func (b *bench) startPlane(ctx context.Context) (*plane, error) {
	pool, dsn, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	gateway, err := freePort(ctx)
	if err != nil {
		pool.Close()
		return nil, err
	}
	p, err := b.startReplica(ctx, dsn, gateway, "https://"+gateway, "info")
	if err != nil {
		pool.Close()
		return nil, err
	}
	p.database = pool
	return p, nil
}

// serving is what metald says once it answers.
var serving = regexp.MustCompile(`address=(\S+) gateway=(\S+) authority=([0-9a-f]+)`)

// startReplica runs one more metald over a database.
func (b *bench) startReplica(ctx context.Context, dsn, gateway, gatewayURL, level string) (*plane, error) {
	key, token := filepath.Join(b.dir, "key"), filepath.Join(b.dir, "token")
	if err := errors.Join(os.WriteFile(key, []byte(benchKey), 0o600), os.WriteFile(token, []byte(benchToken), 0o600)); err != nil {
		return nil, err
	}
	listen, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	p := &plane{url: "http://" + listen, dsn: dsn, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	p.program, err = b.program(ctx, []string{"METAL_POSTGRES=" + dsn}, "metald", "serve", "--insecure-http", "--listen", listen,
		"--gateway-listen", gateway, "--gateway-url", gatewayURL, "--master-key-file", key, "--admin-token-file", token,
		"--log-level", level)
	if err != nil {
		return nil, err
	}
	said, err := p.said(ctx, serving)
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.gateway, p.authority = said[1], said[2]
	return p, nil
}

// stop ends it.
func (p *plane) stop() error {
	p.http.CloseIdleConnections()
	if p.database != nil {
		p.database.Close()
	}
	return p.program.stop()
}

// client speaks to it as its administrator.
func (p *plane) client() (*client.Client, error) {
	return client.New(client.Options{URL: p.url, Token: benchToken, Attempts: 20, Timeout: 30 * time.Second})
}

// fill makes a site, a pool and nodes.
func (p *plane) fill(ctx context.Context, nodes int) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	defer c.Close()
	site, err := c.CreateSite(ctx, contract.NewSite{Tenant: tenant.Root.String(), Name: "bench"})
	if err != nil {
		return err
	}
	pool, err := c.CreatePool(ctx, contract.NewPool{Tenant: tenant.Root.String(), Site: site.ID, Name: "bench"})
	if err != nil {
		return err
	}
	for i := range nodes {
		n, err := c.Enroll(ctx, contract.Enrollment{Pool: pool.ID, BMC: contract.BMCAccess{
			Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), Credentials: contract.Credentials{Username: "u", Password: "p"},
		}})
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, n.ID)
	}
	return nil
}

// send makes one request and reads the answer to its end.
func (p *plane) send(ctx context.Context, method, path, body string) error {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+benchToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return err
}

// load lets callers do one thing after another, and gives how often a second and how long each took.
func load(ctx context.Context, callers int, period time.Duration, do func(ctx context.Context, caller, turn int) error,
) (perSecond float64, delays []time.Duration, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	begun := time.Now()
	for caller := range callers {
		all.Go(func() {
			var own []time.Duration
			for turn := 0; time.Since(begun) < period && failed.Load() == nil; turn++ {
				asked := time.Now()
				if err := do(ctx, caller, turn); err != nil {
					failed.Store(&err)
				}
				own = append(own, time.Since(asked))
			}
			mu.Lock()
			defer mu.Unlock()
			delays = append(delays, own...)
		})
	}
	all.Wait()
	took := time.Since(begun)
	if p := failed.Load(); p != nil {
		return 0, nil, *p
	}
	return float64(len(delays)) / took.Seconds(), delays, nil
}

// api compares one kind of request by so many callers with pgbench with 64 clients, turn by turn.
func api(callers int, promised float64, p99 time.Duration, request func(p *plane, caller, turn int) (method, path, body string),
) func(context.Context, *bench) (result, error) {
	return func(ctx context.Context, b *bench) (_ result, err error) {
		p, err := b.startPlane(ctx)
		if err != nil {
			return result{}, err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		if err := p.fill(ctx, 128); err != nil {
			return result{}, err
		}
		do := func(ctx context.Context, caller, turn int) error {
			method, path, body := request(p, caller, turn)
			return p.send(ctx, method, path, body)
		}
		var ratios, rates, yardsticks []float64
		var delays []time.Duration
		for range b.rounds {
			yardstick, err := b.pgbench(ctx, 64)
			if err != nil {
				return result{}, err
			}
			rate, took, err := load(ctx, callers, b.period, do)
			if err != nil {
				return result{}, err
			}
			ratios, rates, yardsticks = append(ratios, rate/yardstick), append(rates, rate), append(yardsticks, yardstick)
			delays = append(delays, took...)
		}
		ratio := median(ratios)
		half, most := percentiles(delays)
		return result{
			text: fmt.Sprintf("%.2f × (%.0f/s against %.0f/s), p99 %.1f ms, p50 %.1f ms", ratio, median(rates),
				median(yardsticks), milliseconds(most), milliseconds(half)),
			kept: ratio >= promised && most <= p99,
		}, nil
	}
}

// verb changes a node each time: authorize, load, decide, append, view caught up.
func verb(p *plane, caller, turn int) (method, path, body string) {
	n := p.nodes[(caller+64*turn)%len(p.nodes)]
	return http.MethodPost, "/v1/nodes/" + n + "/cordon", fmt.Sprintf(`{"reason":"%d-%d"}`, caller, turn)
}

// get reads one node.
func get(p *plane, caller, turn int) (method, path, body string) {
	return http.MethodGet, "/v1/nodes/" + p.nodes[(caller+turn)%len(p.nodes)], ""
}

// list reads a hundred nodes.
func list(*plane, int, int) (method, path, body string) {
	return http.MethodGet, "/v1/nodes?limit=100", ""
}
