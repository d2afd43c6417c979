package agentcommand

import (
	"net/url"
	"strings"

	"github.com/better-compute/metal/domain/fault"
)

// problems gathers what is wrong with a payload.
type problems []fault.Issue

func (p *problems) need(ok bool, path, message string) {
	if !ok {
		*p = append(*p, fault.Issue{Path: path, Message: message})
	}
}

// Check wants an operation that exists, and a controller with a reference to its credentials.
func (i *Invoke) Check() []fault.Issue {
	var p problems
	p.need(i.Driver != "", "driver", "is needed")
	p.need(i.Concern != "", "concern", "is needed")
	p.need(i.Operation != "", "operation", "is needed")
	p.need(i.BMC.Address != "", "bmc.address", "is needed")
	p.need(isSecretRef(i.BMC.CredentialsRef), "bmc.credentialsRef", "is not of the form secret:<id>")
	return p
}

// Check wants a machine, its MACs and a token to join with.
func (b *BootEntry) Check() []fault.Issue {
	var p problems
	p.need(b.NodeID != "", "nodeId", "is needed")
	p.need(len(b.MACs) > 0, "macs", "at least one is needed")
	p.need(isSecretRef(b.TokenRef), "tokenRef", "is not of the form secret:<id>")
	p.need(b.Kernel != "", "kernel", "is needed")
	p.need(b.Initrd != "", "initrd", "is needed")
	p.need(!b.ExpiresAt.IsZero(), "expiresAt", "is needed")
	return p
}

// Check wants a machine.
func (b *BootEntryGone) Check() []fault.Issue {
	var p problems
	p.need(b.NodeID != "", "nodeId", "is needed")
	return p
}

// Check wants a method and an absolute URL.
func (h *HTTPProxy) Check() []fault.Issue {
	var p problems
	p.need(h.Method != "", "method", "is needed")
	p.need(isHTTP(h.URL), "url", "is not an absolute http or https URL")
	p.need(h.Timeout >= 0, "timeoutSeconds", "is negative")
	return p
}

// Check finds nothing wrong: there is nothing in it.
func (*Inspect) Check() []fault.Issue { return nil }

// Check wants no negative bounds.
func (b *Burnin) Check() []fault.Issue {
	var p problems
	p.need(b.Duration >= 0, "durationSeconds", "is negative")
	p.need(b.Bytes >= 0, "bytes", "is negative")
	return p
}

// Check wants one of the methods that empties a disk.
func (w *WipeDisks) Check() []fault.Issue {
	var p problems
	switch w.Method {
	case "quick", "secure-erase", "crypto-erase":
	default:
		p.need(false, "method", "is none of quick, secure-erase, crypto-erase")
	}
	return p
}

// Check wants a URL, a digest, and a format.
func (w *WriteImage) Check() []fault.Issue {
	var p problems
	p.need(isHTTP(w.URL), "url", "is not an absolute http or https URL")
	p.need(strings.HasPrefix(w.Digest, "sha256:") && len(w.Digest) == len("sha256:")+64, "digest", "is not sha256:<64 hex digits>")
	p.need(w.Format != "", "format", "is needed")
	p.need(w.Bytes > 0, "bytes", "is not above zero")
	p.need(w.UserDataRef == "" || isSecretRef(w.UserDataRef), "userDataRef", "is not of the form secret:<id>")
	return p
}

// Check finds nothing wrong: no disk means the one that was written.
func (*Kexec) Check() []fault.Issue { return nil }

// Check finds nothing wrong: there is nothing in it.
func (*Reboot) Check() []fault.Issue { return nil }

func isSecretRef(s string) bool { return strings.HasPrefix(s, "secret:") && len(s) > len("secret:") }

func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
