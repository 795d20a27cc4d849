//go:build unix

package embedded

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that runs PostgreSQL if this process runs as root, because PostgreSQL refuses to run as root. Nil
// is the user of this process.
type account struct{ uid, gid uint32 }

// own changes the owner of a folder to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// enter creates the folder for the account if it is missing. It changes the owner only from root. The error is fs.ErrPermission if the
// account has no access: the system decides that, which knows groups and access control lists.
func (a *account) enter(folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(folder)
	if err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
		err = a.own(folder)
	}
	if err == nil && command(context.Background(), a, "/", "sh", "-c", `cd "$1"`, "sh", folder).Run() != nil {
		err = fs.ErrPermission
	}
	return err
}

// clusterAccount returns the account for a process that runs as root: the owner of the folder's cluster, so that the
// data keeps its owner after a restart as root, or when a user named postgres is added. Without a cluster it is the
// user postgres, or nobody if there is no postgres.
func clusterAccount(folder string) (*account, error) {
	if info, err := os.Stat(filepath.Join(folder, "data")); err == nil {
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 0 {
			return &account{owner.Uid, owner.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
			gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
			return &account{uint32(uid), uint32(gid)}, errors.Join(uidErr, gidErr)
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it: " +
		"start parley as an ordinary user, or give --database-url")
}

// choose creates the folder, and returns it with the user that runs PostgreSQL. For root the folder may be another one, which this user can
// enter.
func choose(folder string, progress io.Writer) (string, *account, error) {
	if folder == "" {
		return "", nil, errors.New("PostgreSQL needs a folder for its data")
	}
	asked, err := filepath.Abs(folder)
	if err != nil || os.Geteuid() != 0 {
		return asked, nil, errors.Join(err, os.MkdirAll(asked, 0o700))
	}
	if err := os.MkdirAll(filepath.Dir(asked), 0o755); err != nil {
		return "", nil, err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(asked))
	if err != nil {
		return "", nil, err
	}
	asked = filepath.Join(parent, filepath.Base(asked))
	// The name of the substitute is a hash of the path, so it is the same at the next start.
	hash := sha256.Sum256([]byte(asked))
	substitute := fmt.Sprintf("/var/lib/parley/%x", hash[:8])
	for _, place := range []string{asked, substitute} {
		user, err := clusterAccount(place)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(place), 0o755)
		}
		if err == nil {
			err = user.enter(place)
		}
		if !errors.Is(err, fs.ErrPermission) {
			return place, user, err
		}
		if place == asked {
			fmt.Fprintf(progress, "user %d, who runs PostgreSQL, has no access to %s: the data is stored in %s\n", user.uid, asked, substitute)
		}
	}
	return "", nil, fmt.Errorf("the user who runs PostgreSQL has no access to %s or %s: choose another folder", asked, substitute)
}

// lockFile locks a file in a way of flock(2). It follows no symbolic link, because the owner of the folder may be less trusted than this
// process.
func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// unlockFile unlocks explicitly, because a child process shares the open file between fork and exec.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
