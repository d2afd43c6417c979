package main

import (
	"encoding/pem"
	"os"

	"github.com/better-compute/metal/cmd/program"
)

// noCertificates is the word for a ramdisk that trusts nobody.
const noCertificates = "none"

// bundles are where distributions keep the certificates of whom they trust.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",
}

// trusted reads the certificates of whom the ramdisk trusts, and nothing else that the file may hold. It settles which file
// that is.
func (c *ramdiskConfig) trusted(w *program.Issues) (out []byte) {
	if c.certificates == "" {
		c.certificates = noCertificates
		for _, name := range bundles {
			if _, err := os.Stat(name); err == nil {
				c.certificates = name
				break
			}
		}
	}
	if c.certificates == noCertificates {
		return nil
	}
	text, err := os.ReadFile(c.certificates)
	if err != nil {
		w.Option("ca-certificates", "%v", err)
		return nil
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	if len(out) == 0 {
		w.Option("ca-certificates", "%s has no certificate in PEM form", c.certificates)
	}
	return out
}
