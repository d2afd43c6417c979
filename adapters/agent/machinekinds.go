package agent

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/better-compute/metal/domain/agentcommand"
)

// machine has the handlers of a ramdisk or node agent.
type machine struct {
	MachineDeps
	written *written
}

func (d MachineDeps) withDefaults() machine {
	d.Role = cmp.Or(d.Role, agentcommand.RoleRamdisk)
	if d.Seed == nil {
		d.Seed = rand.Uint64
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Images == nil {
		d.Images = &http.Client{Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout:   30 * time.Second,
			ResponseHeaderTimeout: time.Minute,
			DisableKeepAlives:     true,
			DisableCompression:    true, // the digest is of the file as served
		}}
	}
	return machine{MachineDeps: d, written: &written{}}
}
