package tftp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/pin/tftp/v3"
	"go.uber.org/goleak"

	"github.com/better-compute/metal/adapters/netboot/limit"
	"github.com/better-compute/metal/adapters/netboot/tftp"
	"github.com/better-compute/metal/domain/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var program = bytes.Repeat([]byte("iPXE"), 30_000)

// serve makes a directory with a program beside a secret, and serves it.
func serve(t *testing.T, transfers *limit.Transfers, rate *limit.Rate) string {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "ipxe")
	for name, data := range map[string][]byte{"ipxe/arm64-efi/snponly.efi": program, "ipxe/empty": nil, "secret": []byte("secret")} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tftp.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := &tftp.Server{Files: root.FS(), Transfers: transfers, Rate: rate, Logger: slog.New(slog.DiscardHandler)}
	go func() { ended <- s.Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
		_ = root.Close()
	})
	return conn.LocalAddr().String()
}

func get(t *testing.T, address, name string, blocks int) ([]byte, error) {
	t.Helper()
	c, err := client.NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	c.SetBlockSize(blocks)
	c.RequestTSize(true)
	from, err := c.Receive(name, "octet")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = from.WriteTo(&out)
	if told, ok := from.(client.IncomingTransfer); ok && err == nil {
		if size, ok := told.Size(); ok && size != int64(out.Len()) {
			t.Errorf("it was told %d bytes, and got %d", size, out.Len())
		}
	}
	return out.Bytes(), err
}

func many() *limit.Transfers { return limit.NewTransfers(8, 8, time.Second) }

func TestFirmwareFetchesAProgram(t *testing.T) {
	address := serve(t, many(), nil)
	for _, blocks := range []int{512, 1432} {
		for _, name := range []string{"arm64-efi/snponly.efi", "/arm64-efi/snponly.efi", `arm64-efi\snponly.efi`, "x/../arm64-efi/./snponly.efi"} {
			if got, err := get(t, address, name, blocks); err != nil || !bytes.Equal(got, program) {
				t.Errorf("%s in blocks of %d: %d bytes, %v", name, blocks, len(got), err)
			}
		}
	}
	if got, err := get(t, address, "empty", 512); err != nil || len(got) != 0 {
		t.Errorf("an empty file: %q, %v", got, err)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	address := serve(t, many(), nil)
	for _, name := range []string{"", "/", "nothing", "arm64-efi", "../secret", "/../secret", `..\secret`, "arm64-efi/../../secret", "link", "/etc/passwd"} {
		got, err := get(t, address, name, 512)
		if err == nil || len(got) > 0 {
			t.Errorf("%q: %q", name, got)
		} else if strings.Contains(err.Error(), os.TempDir()) {
			t.Errorf("%q: the error names a directory of this host: %v", name, err)
		}
	}
	c, err := client.NewClient(address)
	if err != nil {
		t.Fatal(err)
	}
	if to, err := c.Send("new", "octet"); err == nil {
		if _, err := to.ReadFrom(strings.NewReader("x")); err == nil {
			t.Error("a file was taken")
		}
	}
}

// A machine that asked and takes nothing holds the one place there is; others are told to ask again.
func TestTransfersAreBounded(t *testing.T) {
	address := serve(t, limit.NewTransfers(1, 1, 10*time.Millisecond), nil)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo([]byte("\x00\x01arm64-efi/snponly.efi\x00octet\x00"), to); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 600)
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, from, err := conn.ReadFrom(buffer)
	if err != nil || n != 516 || binary.BigEndian.Uint16(buffer) != 3 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if _, err := get(t, address, "empty", 512); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("a second transfer: %v", err)
	}
	// It goes away with an error of its own, and the place is free.
	if _, err := conn.WriteTo([]byte("\x00\x05\x00\x00gone\x00"), from); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := get(t, address, "empty", 512); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestTheRateIsBounded(t *testing.T) {
	address := serve(t, many(), limit.NewRate(400_000))
	began := time.Now()
	if got, err := get(t, address, "arm64-efi/snponly.efi", 1432); err != nil || len(got) != len(program) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if took := time.Since(began); took < 280*time.Millisecond {
		t.Errorf("%d bytes at 400,000 a second took %s", len(program), took)
	}
}

func TestListenTells(t *testing.T) {
	for _, address := range []string{"192.0.2.1:1069", "127.0.0.1:x"} {
		if _, err := tftp.Listen(t.Context(), address); fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: %v", address, err)
		}
	}
}
