package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pin/tftp/v3"
	"github.com/spf13/pflag"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/cmd/program"
	"github.com/better-compute/metal/domain/fault"
)

// Each part of network boot says what it needs, and nothing is taken that would have no effect.
func TestBootOptions(t *testing.T) {
	dir := t.TempDir()
	const listen, at = "--boot-listen=127.0.0.1:8081", "--boot-url=http://127.0.0.1:8081"
	ranged := []string{listen, at, "--dhcp=server", "--dhcp-interface=eth1"}
	for _, test := range []struct {
		args []string
		want string // the options that are complained of
	}{
		{nil, ""},
		{[]string{listen, at, "--boot-files=" + dir}, ""},
		{[]string{listen, at, "--dhcp=proxy", "--dhcp-interface=eth1", "--dhcp-unknown", "--dhcp-no-ipv6"}, ""},
		{[]string{listen, at, "--dhcp=proxy", "--dhcp-interface=eth1", "--tftp=10.0.0.2:69", "--ipxe-dir=" + dir}, ""},
		{append(ranged, "--dhcp-range=10.0.0.100-10.0.0.200", "--dhcp-router=10.0.0.1", "--dhcp-dns=10.0.0.1,10.0.0.2"), ""},
		{[]string{listen, at, "--cache-dir=" + dir, "--cache-from=https://images.example/,http://10.0.0.9/x", "--cache-bytes=2T"}, ""},
		{[]string{listen, at, "--boot-alone"}, ""},
		{[]string{"--boot-alone"}, "boot-listen"},
		{[]string{"--boot-url=http://x"}, "boot-listen"},
		{[]string{"--dhcp=proxy", "--dhcp-interface=eth1"}, "boot-listen"},
		{[]string{"--tftp=127.0.0.1:1069", "--ipxe-dir=" + dir}, "boot-listen"},
		{[]string{"--cache-dir=" + dir, "--cache-from=https://x"}, "boot-listen"},
		{[]string{listen, at, "--dhcp=yes"}, "dhcp"},
		{[]string{listen, at, "--dhcp=proxy"}, "dhcp-interface"},
		{[]string{listen, at, "--dhcp-unknown"}, "dhcp"},
		{[]string{listen, at, "--dhcp-range=10.0.0.100-10.0.0.200"}, "dhcp"},
		{[]string{listen, at, "--dhcp=proxy", "--dhcp-interface=eth1", "--dhcp-dns=10.0.0.1"}, "dhcp"},
		{ranged, "dhcp-range"},
		{append(ranged, "--dhcp-range=10.0.0.200-10.0.0.100"), "dhcp-range"},
		{append(ranged, "--dhcp-range=10.0.0.100-10.0.0.200", "--dhcp-router=x", "--dhcp-dns=::1", "--dhcp-lease=1s"), "dhcp-dns dhcp-lease dhcp-router"},
		{[]string{listen, at, "--tftp=10.0.0.2:69"}, "ipxe-dir"},
		{[]string{listen, at, "--tftp=:69", "--ipxe-dir=" + dir}, "tftp"},
		{[]string{listen, at, "--dhcp=proxy", "--dhcp-interface=eth1", "--tftp=10.0.0.2:1069", "--ipxe-dir=" + dir}, "tftp"},
		{[]string{listen, at, "--ipxe-dir=" + filepath.Join(dir, "none")}, "ipxe-dir"},
		{[]string{listen, at, "--cache-dir=" + dir}, "cache-from"},
		{[]string{listen, at, "--cache-from=https://x"}, "cache-dir"},
		{[]string{listen, at, "--cache-dir=" + dir, "--cache-from=https://u:p@x", "--cache-bytes=1K"}, "cache-bytes cache-from"},
		{[]string{listen, at, "--boot-transfers=0"}, "boot-transfers"},
	} {
		var c bootConfig
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		c.bind(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Errorf("%v: %v", test.args, err)
			continue
		}
		w := &program.Issues{}
		c.check(w)
		var got []string
		for _, i := range issuesOf(w.Err()) {
			got = append(got, strings.TrimPrefix(i.Path, "--"))
		}
		if listed := strings.ReplaceAll(listed(got), ",", ""); listed != test.want {
			t.Errorf("%v: %q, not %q: %v", test.args, listed, test.want, w.Err())
		}
	}
}

// issuesOf is what a configuration is refused for.
func issuesOf(err error) []fault.Issue {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Issues
	}
	return nil
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{"0": 0, "1": 1, "10K": 10 << 10, "500M": 500 << 20, "50G": 50 << 30, "2T": 2 << 40, "1025": 1025} {
		var s size
		if err := s.Set(text); err != nil || s != want || s.String() != text {
			t.Errorf("%s: %d, %s, %v", text, s, s.String(), err)
		}
	}
	for _, text := range []string{"", "G", "-1", "1.5G", "1GB", "5000000T", "1 G", "K1", "99999999999999999999"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q: %d", text, s)
		}
	}
}

// What can't work is told at the start, and leaves nothing open.
func TestBootThatCannotStart(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"no interface": {"--dhcp", "proxy", "--dhcp-interface", "no-such0"},
		"cache":        {"--cache-dir", token, "--cache-from", "https://images.example/"},
	} {
		code, _, errs := bcd(t.Context(), append([]string{
			"site", "--gateway", "https://127.0.0.1:1", "--ca-sha256", strings.Repeat("a", 64), "--state-dir", t.TempDir(),
			"--token-file", token, "--boot-listen", "127.0.0.1:0", "--boot-url", "http://127.0.0.1:1",
		}, args...)...)
		if code != program.ExitBadConfig || !strings.Contains(errs, name) {
			t.Errorf("%s: %d, %s", name, code, errs)
		}
	}
}

// A site agent with every part that needs no root: TFTP, iPXE by HTTP, and images through the cache. Without the boot lease it
// begins no boot; images go out all the same.
func TestASiteAgentServesNetworkBoot(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	program, image := bytes.Repeat([]byte("iPXE"), 1000), bytes.Repeat([]byte("image"), 1000)
	if err := os.WriteFile(filepath.Join(dir, "snponly.efi"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(image) }))
	defer store.Close()
	boot, files := free(t), freeUDP(t)
	var c siteConfig
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.bind(flags)
	if err := flags.Parse([]string{
		"--state-dir", t.TempDir(), "--boot-listen", boot, "--boot-url", "http://" + boot, "--ipxe-dir", dir, "--tftp", files,
		"--cache-dir", filepath.Join(t.TempDir(), "cache"), "--cache-from", store.URL, "--boot-rate", "100M",
	}); err != nil {
		t.Fatal(err)
	}
	served, err := openBoot(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- served.serve(ctx) }()
	sum := sha256.Sum256(image)
	if got := fetched(t, netboot.ImageURL("http://"+boot, "sha256:"+hex.EncodeToString(sum[:]), store.URL+"/a.raw")); !bytes.Equal(got, image) {
		t.Errorf("without the lease: %.100q", got)
	}
	answer, err := http.Get("http://" + boot + "/ipxe/snponly.efi")
	if err != nil || answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a loader without the lease: %+v, %v", answer, err)
	}
	_ = answer.Body.Close()
	if client, err := tftp.NewClient(files); err != nil {
		t.Error(err)
	} else if _, err := client.Receive("snponly.efi", "octet"); err == nil {
		t.Error("a loader by TFTP without the lease")
	}
	served.lease.Hold(time.Now().Add(time.Hour), true, nil)
	for where, want := range map[string][]byte{
		"http://" + boot + "/ipxe/snponly.efi":                                                     program,
		netboot.ImageURL("http://"+boot, "sha256:"+hex.EncodeToString(sum[:]), store.URL+"/a.raw"): image,
	} {
		if got := fetched(t, where); !bytes.Equal(got, want) {
			t.Errorf("%s: %.100q", where, got)
		}
	}
	client, err := tftp.NewClient(files)
	if err != nil {
		t.Fatal(err)
	}
	from, err := client.Receive("snponly.efi", "octet")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := from.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), program) {
		t.Errorf("by TFTP: %d bytes, %v", got.Len(), err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// fetched asks until the program serves.
func fetched(t *testing.T, url string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); ; {
		answer, err := client.Get(url)
		if err != nil {
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
			continue
		}
		b, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v: %s", url, answer.Status, err, b)
		}
		return b
	}
}

// freeUDP finds an address of UDP that nobody listens on.
func freeUDP(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.LocalAddr().String()
}
