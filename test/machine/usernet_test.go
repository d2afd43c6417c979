//go:build qemu

package machine

import (
	"testing"

	"github.com/better-compute/metal/adapters/netboot"
	"github.com/better-compute/metal/test/machine/qemu"
)

// The network is QEMU's own, which anybody may use: its DHCP server names the machine's script, iPXE of the network card gets it.
func TestALifeInAUsersNetwork(t *testing.T) {
	sideBySide(t)
	b := StartUser(t, nil)
	m := b.Add(func(s *qemu.Spec) { s.Network = "user,bootfile=" + netboot.ScriptURL(b.Boot, s.MAC) })
	ready(t, b, m)
	deployed(t, b, m)
	released(t, b, m, "quick")
	b.Verify()
}
