package postgres_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/domain/fault"
)

// keyBytes are 32 bytes with everything awkward in them: zero, line ends, non-ASCII.
const keyBytes = "\x00\n\r\xff+/=-_ 0123456789abcdefghijkl"

func masterKey(t *testing.T, text string) postgres.MasterKey {
	t.Helper()
	key, err := postgres.ParseMasterKey([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestParseMasterKey(t *testing.T) {
	want := masterKey(t, keyBytes)
	raw := []byte(keyBytes)
	for name, text := range map[string]string{
		"raw and a line end":  keyBytes[:31] + "l\n",
		"hex":                 hex.EncodeToString(raw),
		"upper-case hex, CR":  strings.ToUpper(hex.EncodeToString(raw)) + "\r\n",
		"base64":              base64.StdEncoding.EncodeToString(raw) + "\n",
		"base64 unpadded":     base64.RawStdEncoding.EncodeToString(raw),
		"base64 URL":          base64.URLEncoding.EncodeToString(raw),
		"base64 URL unpadded": " " + base64.RawURLEncoding.EncodeToString(raw),
	} {
		if got, err := postgres.ParseMasterKey([]byte(text)); err != nil || got.ID() != want.ID() {
			t.Errorf("%s: got key %s, %v; want %s", name, got, err, want)
		}
	}
	for name, text := range map[string]string{
		"empty":                  "",
		"only white space":       " \n",
		"short":                  "hunter2",
		"half a key in hex":      hex.EncodeToString(raw[:16]),
		"64 characters, not hex": strings.Repeat("z", 64),
		"33 bytes in hex":        hex.EncodeToString(append(raw, 1)),
		"31 bytes in base64":     base64.StdEncoding.EncodeToString(raw[:31]),
		"all zero, raw":          strings.Repeat("\x00", 32),
		"one byte repeated, hex": strings.Repeat("7f", 32),
		"two keys, line by line": hex.EncodeToString(raw) + "\n" + hex.EncodeToString(raw),
		"33 characters":          "hunter2" + strings.Repeat(" ", 25) + "x",
	} {
		_, err := postgres.ParseMasterKey([]byte(text))
		if fault.CodeOf(err) != fault.InvalidConfig {
			t.Errorf("%s: got %v, want INVALID_CONFIG", name, err)
		}
		if strings.TrimSpace(text) != "" && err != nil && strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("%s: the error shows what it was given: %v", name, err)
		}
	}
}

func TestMasterKeySource(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(keyBytes), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	private, shared := write("private", 0o600), write("shared", 0o640)
	for name, test := range map[string]struct {
		source postgres.MasterKeySource
		broken string // part of the error; empty: it loads
	}{
		"file":               {postgres.MasterKeySource{File: private}, ""},
		"value":              {postgres.MasterKeySource{Value: hex.EncodeToString([]byte(keyBytes))}, ""},
		"file wins over dir": {postgres.MasterKeySource{File: private, CredentialsDir: "/nowhere"}, ""},
		"both":               {postgres.MasterKeySource{File: private, Value: "x"}, "both"},
		"none":               {postgres.MasterKeySource{}, "no master key"},
		"others may read it": {postgres.MasterKeySource{File: shared}, "mode 0640"},
		"missing":            {postgres.MasterKeySource{File: private + "x"}, "no such file"},
		"a folder":           {postgres.MasterKeySource{File: dir}, "not a file"},
		"no credential":      {postgres.MasterKeySource{CredentialsDir: dir}, "no such file"},
	} {
		key, err := test.source.Load()
		switch {
		case test.broken == "" && (err != nil || key.ID() != masterKey(t, keyBytes).ID()):
			t.Errorf("%s: got %s, %v", name, key, err)
		case test.broken != "" && (fault.CodeOf(err) != fault.InvalidConfig || !strings.Contains(err.Error(), test.broken)):
			t.Errorf("%s: got %v, want INVALID_CONFIG with %q", name, err, test.broken)
		}
	}
	credential := write("metal-master-key", 0o440)
	if _, err := (postgres.MasterKeySource{CredentialsDir: dir}).Load(); err != nil {
		t.Errorf("systemd credential with mode 0440: %v", err)
	}
	if err := os.Chmod(credential, 0o444); err != nil {
		t.Fatal(err)
	}
	if _, err := (postgres.MasterKeySource{CredentialsDir: dir}).Load(); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("systemd credential readable by all: got %v, want INVALID_CONFIG", err)
	}
}

func TestEnsureMasterKeyFileGivesAllOneKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "master-key")
	const callers = 16
	ids := make([]string, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			key, err := postgres.EnsureMasterKeyFile(path)
			if err != nil {
				t.Error(err)
			}
			ids[i] = key.ID()
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("callers got different keys: %v", ids)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v (%v), want 0600", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want only the key", entries, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.EnsureMasterKeyFile(path); fault.CodeOf(err) != fault.InvalidConfig {
		t.Errorf("a key that others may read: got %v, want INVALID_CONFIG", err)
	}
}

func TestKeysArePrintedNowhere(t *testing.T) {
	key := masterKey(t, keyBytes)
	var log strings.Builder
	type holder struct {
		key    postgres.MasterKey
		nested *struct{ key postgres.MasterKey }
	}
	held := holder{key, &struct{ key postgres.MasterKey }{key}}
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", key, "held", held)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", key, "held", held, "list", []any{key, held})
	asJSON, err := json.Marshal(map[string]any{"k": key, "held": held})
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(asJSON)
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%x", "%X", "%q", "%d", "%p"} {
		out += fmt.Sprintf(verb, key) + fmt.Sprintf(verb, &key) + fmt.Sprintf(verb, []any{key, held, &held})
	}
	for _, leak := range []string{"456789abc", "34353637", "52 53 54", "0x34, 0x35"} {
		if strings.Contains(strings.ToLower(out), leak) {
			t.Errorf("%q shows in %s", leak, out)
		}
	}
	if !strings.Contains(out, key.ID()) {
		t.Errorf("the fingerprint shows nowhere in %s", out)
	}
}
