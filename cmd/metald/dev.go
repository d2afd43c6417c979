package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/metal/adapters/postgres"
	"github.com/better-compute/metal/adapters/postgres/cluster"
	"github.com/better-compute/metal/cmd/metald/plane"
	"github.com/better-compute/metal/domain/fault"
)

func devCommand() *cobra.Command {
	var c config
	var dir string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a control plane for trying out, with a PostgreSQL of its own",
		Long: `dev runs a whole control plane on this machine. It needs nothing but an installed PostgreSQL 15 or newer: it starts a
private server from its binaries, on a unix socket in the data directory, migrates it, and prints its addresses, what
agents know it by, and the token of the first administrator. Ctrl-C or SIGTERM stops all of it. After a crash the next start
recovers.

As root it runs PostgreSQL as the user postgres.

The data directory holds:
  admin-token   the token of the first administrator, mode 0600
  master-key    the key that wraps the secret store, mode 0600: without it every stored credential is lost
  postgres      the database
` + exitStatus,
		Example: `  metald dev
  metald dev --data-dir ./try --listen 127.0.0.1:9000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := fillOptions(cmd, os.LookupEnv)
			c.insecureHTTP, c.postgres = true, ownPostgres
			c.check(w, true)
			if err := w.Err(); err != nil {
				return err
			}
			return unlessStopped(cmd.Context(), dev(cmd.Context(), c, dir))
		},
	}
	c.bindServer(cmd.Flags(), "127.0.0.1:8080", "127.0.0.1:8444")
	c.log.Bind(cmd.Flags())
	cmd.Flags().StringVar(&dir, "data-dir", defaultDataDir(), "directory for everything that is kept")
	return describeOptions(cmd)
}

// defaultDataDir follows the XDG base directory specification for state; root's is where its daemons keep theirs.
func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/metal-dev"
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "metal-dev")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "metal-dev"
	}
	return filepath.Join(home, ".local", "state", "metal-dev")
}

// ownPostgres stands for the private server until it runs.
const ownPostgres = "postgres:///metal"

func dev(ctx context.Context, c config, dir string) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := plane.Free(ctx, c.listen, c.gatewayListen); err != nil { // before a database is made for nothing
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: the database's own account must pass through
		return fault.Wrap(err, fault.InvalidConfig, "the data directory can't be made").WithRemedy("choose another --data-dir")
	}
	database := filepath.Join(dir, "postgres")
	master, err := devMasterKey(filepath.Join(dir, "master-key"), database)
	if err != nil {
		return err
	}
	private, err := cluster.Start(ctx, cluster.Options{DataDir: database})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, private.Stop(stopping))
	}()
	if err := private.CreateDatabase(ctx, "metal"); err != nil {
		return err
	}
	c.postgres = private.DSN("metal")
	token, err := ensureToken(filepath.Join(dir, "admin-token"))
	if err != nil {
		return err
	}
	return whileUp(ctx, private.Ended(), database+".log", func(ctx context.Context) error {
		return plane.Run(ctx, c.plane(master, token), func(a plane.Addresses) {
			fmt.Printf(devBanner, a.API, token, filepath.Join(dir, "admin-token"), dir, a.Gateway, a.CASHA256)
		})
	})
}

// endKnown is how soon after its connections broke the end of the private server is known.
const endKnown = 2 * time.Second

// whileUp runs a control plane until it ends, or until its database does, which is told as the reason.
func whileUp(ctx context.Context, ended <-chan struct{}, log string, run func(context.Context) error) error {
	up, end := context.WithCancelCause(ctx)
	defer end(nil)
	died := fault.New(fault.Unavailable, "the private PostgreSQL ended by itself").
		WithRemedy("read " + log + ", then start metald dev again: it recovers what was committed")
	go func() {
		select {
		case <-ended:
			end(died)
		case <-up.Done():
		}
	}()
	err := run(up)
	if fault.CodeOf(err) == fault.Unavailable && context.Cause(up) == nil { // its connections may break before its end is known
		select {
		case <-up.Done():
		case <-time.After(endKnown):
		}
	}
	if errors.Is(context.Cause(up), died) {
		return died
	}
	return err
}

// devMasterKey reads the master key, or makes one for a database that is still to be made. A database without its key
// is refused: a new key would open none of its secrets.
func devMasterKey(path, database string) (postgres.MasterKey, error) {
	_, noKey := os.Stat(path)
	if _, err := os.Stat(database); err == nil && errors.Is(noKey, fs.ErrNotExist) {
		return postgres.MasterKey{}, fault.New(fault.InvalidConfig,
			"the master key %s is missing, and the database beside it is sealed under it", path).
			WithRemedy("restore the key from your copy; without it, only another --data-dir starts afresh")
	}
	return postgres.EnsureMasterKeyFile(path)
}

const devBanner = `metald dev is up.

  address  %[1]s   (documentation at %[1]s/docs)
  token    %[2]s
           kept in %[3]s
  agents   %[5]s, authority %[6]s
  data     %[4]s

Try:
  export METAL_URL=%[1]s METAL_TOKEN_FILE=%[3]s
  metalctl whoami

Ctrl-C stops it.
`

// ensureToken reads the token, or makes one. A crash leaves either no file or a whole one.
func ensureToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(err, fault.InvalidConfig, "the administrator's token can't be read")
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("draw a token: %w", err)
	}
	token := "metal_" + hex.EncodeToString(raw)
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(token+"\n"), 0o600); err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "the administrator's token can't be written")
	}
	return token, os.Rename(whole, path)
}
