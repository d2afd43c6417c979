package main

import (
	"bufio"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/better-compute/metal/adapters/httpapi/contract"
	"github.com/better-compute/metal/domain/fault"
)

// signedWell checks that a head's signature is over what the head says, by the key that it names.
func signedWell(h contract.AuditHead) error {
	fingerprint := sha256.Sum256(h.PublicKey)
	says := signedText(h.Signed)
	switch {
	case len(h.PublicKey) != ed25519.PublicKeySize || hex.EncodeToString(fingerprint[:]) != h.KeyID:
		return badHead("its key is not the one that it names")
	case !ed25519.Verify(h.PublicKey, h.Signed, h.Signature):
		return badHead("its signature does not hold")
	case says["position"] != strconv.FormatUint(h.Position, 10), says["streams"] != strconv.Itoa(h.Streams),
		says["digest"] != h.Digest:
		return badHead("what was signed is not what it says")
	}
	return nil
}

func badHead(why string) error {
	return fault.New(fault.InvalidState, "the head of the log is not to be trusted: %s", why)
}

// signedText reads the lines "name value" of a head's signed text. One of another form has none.
func signedText(text []byte) map[string]string {
	lines := strings.Split(string(text), "\n")
	if lines[0] != "metal-head-1" {
		return nil
	}
	says := map[string]string{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, " ")
		says[name] = value
	}
	return says
}

// writeWhole makes a file appear under its name when it is whole, readable by its owner alone.
func writeWhole(name string, write func(io.Writer) error) error {
	fresh, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // made with mode 0600
	if err != nil {
		return usage("%s cannot be written: %s", name, err)
	}
	out := bufio.NewWriterSize(fresh, 256<<10)
	err = write(out)
	if flushed := errors.Join(out.Flush(), fresh.Sync(), fresh.Close()); err == nil && flushed != nil {
		err = usage("%s cannot be written: %s", name, flushed)
	}
	if err == nil {
		err = os.Rename(fresh.Name(), name)
	}
	if err != nil {
		_ = os.Remove(fresh.Name()) // what is left of a failed write
	}
	return err
}
