package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	eventlog "github.com/better-compute/metal/adapters/eventstore/postgres"
	"github.com/better-compute/metal/commands"
)

// onPostgres puts the log where it is in use, and keeps the log of requests out of the figures.
func onPostgres(b *testing.B) setup {
	return func(w *world, c *Config) {
		log := must(eventlog.New(b.Context(), w.pool, must(commands.Registry())(b), eventlog.Options{}))(b)
		b.Cleanup(log.Close)
		c.Log = log
	}
}

// measure sends requests from many callers over plain HTTP, b.N in all, and reports how many a second and the 99th
// percentile.
func measure(b *testing.B, w *world, callers int, request func(i int64) (method, path, body string)) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	plain := Server("", w.api)
	listener := listen(b)
	go func() { _ = plain.Serve(listener) }()
	defer func() { _ = plain.Shutdown(context.Background()) }()
	base := "http://" + listener.Addr().String()
	var next atomic.Int64
	var wg sync.WaitGroup
	took := make([]time.Duration, b.N)
	before := burnt(b)
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				began := time.Now()
				method, path, body := request(i)
				if err := ask(client, method, base+path, body); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((burnt(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

func ask(client *http.Client, method, url, body string) error {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s", method, url, res.StatusCode, text)
	}
	return err
}

func BenchmarkGetNode(b *testing.B) {
	w := start(b, onPostgres(b))
	n := w.enroll(w.estate("acme").pool)
	measure(b, w, 16, func(int64) (string, string, string) { return "GET", "/v1/nodes/" + n.ID, "" })
}

func BenchmarkListNodes(b *testing.B) {
	w := start(b, onPostgres(b))
	pool := w.estate("acme").pool
	for range 100 {
		w.enroll(pool)
	}
	measure(b, w, 16, func(int64) (string, string, string) { return "GET", "/v1/nodes", "" })
}

// BenchmarkVerb cordons and uncordons machines in turn, so that every request appends.
func BenchmarkVerb(b *testing.B) {
	w := start(b, onPostgres(b))
	pool := w.estate("acme").pool
	const machines = 256
	ids := make([]string, machines)
	for i := range ids {
		ids[i] = w.enroll(pool).ID
	}
	measure(b, w, 64, func(i int64) (string, string, string) {
		verb := "/cordon"
		if i/machines%2 == 1 {
			verb = "/uncordon"
		}
		return "POST", "/v1/nodes/" + ids[i%machines] + verb, ""
	})
}

// burnt is the processor time of this process, callers included and PostgreSQL not: it says more than req/s where others
// use the machine too.
func burnt(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	return must(net.Listen("tcp", "127.0.0.1:0"))(b)
}
