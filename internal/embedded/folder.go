//go:build unix

package embedded

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"syscall"
)

// own changes the owner of a folder to the user that runs PostgreSQL. Nil is the user of this process.
func own(folder string, user *syscall.Credential) error {
	if user == nil {
		return nil
	}
	return os.Lchown(folder, int(user.Uid), int(user.Gid))
}

// choose creates the folder, and returns it with the user that runs PostgreSQL. PostgreSQL refuses to run as root: for
// root it is the owner of the folder, so that the data keeps its owner, and root's folders get the owner postgres, or
// nobody if there is no postgres. If this user cannot enter the folder, the data has another one.
func choose(folder string, progress io.Writer) (string, *syscall.Credential, error) {
	folder, err := filepath.Abs(folder)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil || os.Geteuid() != 0 {
		return folder, nil, err
	}
	info, err := os.Stat(folder)
	if err != nil {
		return "", nil, err
	}
	user := &syscall.Credential{Uid: info.Sys().(*syscall.Stat_t).Uid, Gid: info.Sys().(*syscall.Stat_t).Gid}
	if user.Uid == 0 {
		if user, err = unprivileged(); err == nil {
			err = own(folder, user)
		}
	}
	if err != nil {
		return "", nil, err
	}
	probe := command(context.Background(), user, "true")
	probe.Dir = folder
	if probe.Run() == nil {
		return folder, user, nil
	}
	hash := sha256.Sum256([]byte(folder)) // the same at the next start
	substitute := fmt.Sprintf("/var/lib/parley/%x", hash[:8])
	fmt.Fprintf(progress, "user %d, who runs PostgreSQL, has no access to %s: the data is stored in %s\n", user.Uid, folder, substitute)
	return substitute, user, errors.Join(os.MkdirAll(substitute, 0o755), own(substitute, user))
}

// unprivileged returns the user postgres, or nobody if there is no postgres.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			var ids syscall.Credential
			_, err = fmt.Sscan(found.Uid+" "+found.Gid, &ids.Uid, &ids.Gid)
			return &ids, err
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it: " +
		"start parley as an ordinary user, or give --database-url")
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
