package plane

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
	"github.com/better-compute/metal/test/pgtest"
)

// A start that goes wrong late leaves no port taken: a program that embeds the plane may try again.
func TestAFailedStartGivesTheGatewaysPortBack(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	gateway := freePort(t)
	key, err := postgres.ParseMasterKey([]byte(strings.Repeat("k1", 16)))
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), Config{
		Postgres: pgtest.DSN(t), MasterKey: key, AdminToken: "metal_" + strings.Repeat("a", 64), Listen: taken.Addr().String(),
		InsecureHTTP: true, Gateway: Gateway{Listen: gateway}, Kernel: "vmlinuz", Initrd: "initramfs",
		Logger: slog.New(slog.DiscardHandler),
	}, func(Addresses) { t.Error("it says that it is ready") })
	if fault.CodeOf(err) != fault.InvalidConfig || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Fatalf("error: %v", err)
	}
	if err := Free(t.Context(), "127.0.0.1:0", gateway); err != nil {
		t.Errorf("the gateway's port: %v", err)
	}
}

// freePort is an address below the ports that systems give to whoever asks for any: nobody happens to take it.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000))
		if Free(t.Context(), "127.0.0.1:0", address) == nil {
			return address
		}
	}
	t.Fatal("there is no free port")
	return ""
}
