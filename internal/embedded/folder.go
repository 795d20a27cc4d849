//go:build unix

package embedded

import (
	"cmp"
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

// choose creates the folder, and returns it with the user that runs PostgreSQL, nil for that of this process. PostgreSQL
// refuses to run as root: for root it is the owner of the folder, so that the data keeps its owner, and root's folders
// get the owner postgres, or nobody if there is no postgres. If the owner cannot enter the folder, the data has another one.
func choose(folder string, progress io.Writer) (string, *syscall.Credential, error) {
	makeErr := os.MkdirAll(folder, 0o755)
	absolute, absErr := filepath.Abs(folder)
	folder, linkErr := filepath.EvalSymlinks(absolute)
	var owner syscall.Stat_t
	err := cmp.Or(makeErr, absErr, linkErr, syscall.Stat(folder, &owner))
	if err != nil || os.Geteuid() != 0 {
		return folder, nil, err
	}
	account := &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	if account.Uid == 0 {
		found, err := user.Lookup("postgres")
		if err != nil {
			found, err = user.Lookup("nobody")
		}
		if err != nil {
			return "", nil, fmt.Errorf("PostgreSQL does not run as root: start parley as an ordinary user, or give --database-url: %w", err)
		}
		_, err = fmt.Sscan(found.Uid+" "+found.Gid, &account.Uid, &account.Gid)
		if err = errors.Join(err, own(folder, account)); err != nil {
			return "", nil, err
		}
	}
	probe := command(context.Background(), account, "true")
	probe.Dir = folder
	if probe.Run() == nil {
		return folder, account, nil
	}
	hash := sha256.Sum256([]byte(folder)) // the same at the next start
	substitute := fmt.Sprintf("/var/lib/parley-dev/%x", hash[:8])
	fmt.Fprintf(progress, "user %d, who runs PostgreSQL, has no access to %s: the data is stored in %s\n", account.Uid, folder, substitute)
	return substitute, account, errors.Join(os.MkdirAll(substitute, 0o755), own(substitute, account))
}

func own(folder string, account *syscall.Credential) error {
	return os.Lchown(folder, int(account.Uid), int(account.Gid))
}

// takeFolder locks the folder for this process, and waits for the end of a PostgreSQL whose process was killed:
// PostgreSQL's processes inherit the log and its lock.
func (s *Server) takeFolder(ctx context.Context) error {
	lock, err := lockFile(filepath.Join(s.folder, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() error { // unlocks explicitly, because a child process shares the open file between fork and exec
		return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
	})
	err = retry(ctx, func(context.Context) (again bool, err error) {
		s.log, err = lockFile(filepath.Join(s.folder, "postgres.log"), syscall.LOCK_EX|syscall.LOCK_NB)
		return errors.Is(err, syscall.EWOULDBLOCK), err
	})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, s.log.Close)
	return s.log.Truncate(0)
}

// lockFile opens a file and locks it in a way of flock(2). It follows no symbolic link, because the owner of the folder
// may be less trusted than this process.
func lockFile(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another parley process, or its PostgreSQL, uses %s: stop it, or choose another folder: %w", path, err)
	}
	return file, nil
}
