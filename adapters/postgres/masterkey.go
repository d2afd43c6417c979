package postgres

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/better-compute/metal/domain/fault"
)

// masterKeyBytes is the size of an AES-256 key.
const masterKeyBytes = 32

// masterKeyCredential is the name under which systemd hands the master key to the service (LoadCredential=).
const masterKeyCredential = "metal-master-key"

// secretKey is an AES-256 key that no log line, error or dump shows. It hides in a closure, since fmt walks into
// unexported fields, and behind some pointers, without asking any method.
type secretKey struct{ bytes func() []byte }

func keyOf(raw []byte) secretKey { return secretKey{func() []byte { return raw }} }

const redacted = "[redacted]"

// String is [redacted].
func (secretKey) String() string { return redacted }

// Format writes [redacted] for every verb, %x and %#v included.
func (secretKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue is [redacted].
func (secretKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MasterKey wraps the keys of the secret store. It lives outside the database: whoever has only a backup of the
// database has no secret. It prints as its ID.
type MasterKey struct{ key secretKey }

// ID is the fingerprint of the key: 16 hexadecimal digits that tell nothing of it. Empty for the zero value.
func (m MasterKey) ID() string {
	if m.key.bytes == nil {
		return ""
	}
	sum := sha256.Sum256(append([]byte("metal-master-key-id:"), m.key.bytes()...))
	return hex.EncodeToString(sum[:8])
}

// String is the ID.
func (m MasterKey) String() string { return m.ID() }

// Format writes the ID for every verb.
func (m MasterKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.ID()) }

// LogValue is the ID.
func (m MasterKey) LogValue() slog.Value { return slog.StringValue(m.ID()) }

// MasterKeySource says where the master key is. File and Value exclude each other; CredentialsDir is looked at when
// neither is set.
type MasterKeySource struct {
	File           string // path of a file that only its owner may read
	Value          string // the key itself, from the environment
	CredentialsDir string // systemd's $CREDENTIALS_DIRECTORY
}

// Load reads the key: 32 bytes as they are, in hexadecimal or in base64. Every error is INVALID_CONFIG and tells what
// is wrong with the source, never its content.
func (s MasterKeySource) Load() (MasterKey, error) {
	switch {
	case s.File != "" && s.Value != "":
		return MasterKey{}, fault.New(fault.InvalidConfig, "the master key is given both as a file and as a value").
			WithRemedy("keep one of them")
	case s.File != "":
		return readMasterKey(s.File, 0o077)
	case s.Value != "":
		return ParseMasterKey([]byte(s.Value))
	case s.CredentialsDir != "":
		// systemd may show the file as 0440 where an access list gives it to the service's user.
		return readMasterKey(filepath.Join(s.CredentialsDir, masterKeyCredential), 0o007)
	}
	return MasterKey{}, fault.New(fault.InvalidConfig, "there is no master key for the secret store").
		WithRemedy("write one with `openssl rand -hex 32`, keep it with mode 0600, and keep a copy off the machine")
}

// readMasterKey refuses a file that grants any of the refused permission bits.
func readMasterKey(path string, refused fs.FileMode) (MasterKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return MasterKey{}, fault.Wrap(err, fault.InvalidConfig, "the master key file can't be read: %v", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only: closing loses nothing
	info, err := f.Stat()
	if err != nil {
		return MasterKey{}, fault.Wrap(err, fault.InvalidConfig, "the master key file can't be read: %v", err)
	}
	if !info.Mode().IsRegular() {
		return MasterKey{}, fault.New(fault.InvalidConfig, "the master key %s is not a file", path)
	}
	if info.Mode().Perm()&refused != 0 {
		return MasterKey{}, fault.New(fault.InvalidConfig, "others may read the master key file %s (mode %04o)",
			path, info.Mode().Perm()).WithRemedy("chmod 600 " + path)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return MasterKey{}, fault.Wrap(err, fault.InvalidConfig, "the master key file can't be read: %v", err)
	}
	return ParseMasterKey(text)
}

// ParseMasterKey reads 32 bytes as they are, in hexadecimal or in base64 (standard or URL alphabet), white space around
// them ignored. Anything else is INVALID_CONFIG.
func ParseMasterKey(text []byte) (MasterKey, error) {
	wrong := fault.New(fault.InvalidConfig, "the master key is not 32 bytes, raw, in hexadecimal or in base64").
		WithRemedy("write one with `openssl rand -hex 32`")
	raw := text
	if len(raw) != masterKeyBytes {
		raw = bytes.TrimSpace(text)
	}
	switch len(raw) {
	case masterKeyBytes:
		if _, err := hex.DecodeString(string(raw)); err == nil {
			return MasterKey{}, wrong // 32 hexadecimal digits: a key of half the size, not 32 raw bytes
		}
	case hex.EncodedLen(masterKeyBytes):
		key, err := hex.DecodeString(string(raw))
		if err != nil {
			return MasterKey{}, wrong
		}
		raw = key
	default:
		key, err := decodeBase64(raw)
		if err != nil || len(key) != masterKeyBytes {
			return MasterKey{}, wrong
		}
		raw = key
	}
	if len(bytes.Trim(raw, string(raw[:1]))) == 0 {
		return MasterKey{}, fault.New(fault.InvalidConfig, "the master key is one byte repeated").
			WithRemedy("write one with `openssl rand -hex 32`")
	}
	return MasterKey{keyOf(bytes.Clone(raw))}, nil
}

// decodeBase64 takes both alphabets, with and without padding.
func decodeBase64(text []byte) ([]byte, error) {
	s := string(bytes.TrimRight(text, "="))
	if key, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return key, nil
	}
	return base64.RawURLEncoding.DecodeString(s)
}

// EnsureMasterKeyFile reads the key in the file at path, or makes one and writes it there with mode 0600. A crash
// leaves either no file or a whole one, and of two processes at once both get the key of the first.
func EnsureMasterKeyFile(path string) (MasterKey, error) {
	key, err := readMasterKey(path, 0o077)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := writeMasterKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return MasterKey{}, fault.Wrap(err, fault.InvalidConfig, "the master key file can't be written: %v", err)
	}
	return readMasterKey(path, 0o077)
}

// writeMasterKey makes the file complete under another name first, then links it to path, which fails if path exists.
func writeMasterKey(path string) error {
	raw := make([]byte, masterKeyBytes)
	_, _ = rand.Read(raw) // never fails: it ends the program instead
	f, err := os.CreateTemp(filepath.Dir(path), ".master-key-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // only the name: the link keeps the file
	_, err = f.WriteString(hex.EncodeToString(raw) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}
