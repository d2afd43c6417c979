package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/better-compute/metal/domain/fault"
)

// account is whom the server runs as: this process's own, or postgres where that is root, which the server refuses.
type account struct {
	uid, gid uint32
	switched bool
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return account{}, fault.Wrap(err, fault.InvalidConfig,
			"PostgreSQL refuses to run as root, and there is no account postgres").
			WithRemedy("run as another user, or install PostgreSQL, which makes the account: " + howToInstall)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err, err2); err != nil {
		return account{}, fault.Wrap(err, fault.InvalidConfig, "the account postgres has no numeric id")
	}
	return account{uid: uint32(uid), gid: uint32(gid), switched: true}, nil
}

// become makes a command run as the account, in its own process group, so that Ctrl-C on the terminal reaches us
// alone and we decide when the server stops.
func (a account) become(c *exec.Cmd) {
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.switched {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
}

// own gives a path to the account.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "%s cannot be given to the account postgres: %v", path, err)
	}
	return nil
}

// ownDirectory makes a directory and its parents where they are missing, and proves that the account reaches it.
func (a account) ownDirectory(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fault.Wrap(err, fault.InvalidConfig, "%s cannot be made: %v", path, err)
	}
	if !a.switched {
		return nil
	}
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fault.Wrap(err, fault.InvalidConfig, "%s cannot be read: %v", at, err)
		}
		if !a.mayPass(info) {
			return fault.New(fault.InvalidConfig, "PostgreSQL runs as the account postgres, which may not pass through %s", at).
				WithRemedy("choose a data directory under /var/lib, or run: chmod o+x " + at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// mayPass tells whether the account may go through a directory, by its mode.
func (a account) mayPass(info fs.FileInfo) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case ok && owner.Uid == a.uid:
		return mode&0o100 != 0
	case ok && owner.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// longestSocket is what fits into the address of a unix socket, sun_path, without its closing zero, on Linux; macOS
// has four bytes less.
const longestSocket = 103

// socketDirectory makes the directory of the socket, open to the account alone (and to root).
func (a account) socketDirectory(o Options) (string, error) {
	directory := o.SocketDir
	if directory == "" {
		directory = o.DataDir + ".socket"
	}
	if len(directory)+len(socketName) > longestSocket || strings.Contains(directory, ",") {
		name := sha256.Sum256([]byte(o.DataDir))
		directory = filepath.Join("/tmp", "metal-pg-"+strconv.Itoa(int(a.uid))+"-"+hex.EncodeToString(name[:6]))
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "the socket directory %s has no absolute path", o.SocketDir)
	}
	if err := a.ownDirectory(filepath.Dir(directory)); err != nil {
		return "", err
	}
	if err := os.Mkdir(directory, 0o700); err == nil {
		return directory, a.own(directory)
	}
	// It was there before: it must be a directory of ours, not one that somebody else put in the way.
	info, err := os.Lstat(directory)
	if err != nil {
		return "", fault.Wrap(err, fault.InvalidConfig, "the socket directory cannot be made: %v", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	ours := ok && (owner.Uid == a.uid || owner.Uid == uint32(os.Geteuid()))
	if !ours || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return "", fault.New(fault.InvalidConfig, "the socket directory %s is not a private directory of ours", directory).
			WithRemedy("name a directory that does not exist yet, or close it: mode 0700")
	}
	return directory, a.own(directory)
}
