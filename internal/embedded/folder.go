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

// canEnter lets the system decide, which knows groups and access control lists.
func (a *account) canEnter(folder string) bool {
	return command(context.Background(), a, "/", "sh", "-c", `cd "$1"`, "sh", folder).Run() == nil
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

// lockFolder creates and locks the folder, and returns it with the user that runs PostgreSQL. For root the folder may
// be another one, which this user can enter.
func lockFolder(asked string, progress io.Writer) (folder string, user *account, lock *os.File, err error) {
	if folder, user, err = settle(asked, progress); err != nil {
		return "", nil, nil, err
	}
	lock, err = lockFile(filepath.Join(folder, "lock"), user, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another parley process uses %s: stop it, or choose another folder", folder)
	}
	return folder, user, lock, err
}

func settle(folder string, progress io.Writer) (string, *account, error) {
	if folder == "" {
		return "", nil, errors.New("PostgreSQL needs a folder for its data")
	}
	asked, err := filepath.Abs(folder)
	if err != nil {
		return "", nil, err
	}
	asked = resolve(asked)
	if os.Geteuid() != 0 {
		return asked, nil, os.MkdirAll(asked, 0o700)
	}

	// The name of the substitute is a hash of the path, so it is the same at the next start.
	hash := sha256.Sum256([]byte(asked))
	substitute := fmt.Sprintf("/var/lib/parley/%x", hash[:8])
	for _, place := range []string{asked, substitute} {
		account, err := clusterAccount(place)
		if err != nil {
			return "", nil, err
		}
		if usable, err := enter(place, account); err != nil || usable {
			return place, account, err
		}
		if place == asked {
			fmt.Fprintf(progress, "user %d, who runs PostgreSQL, has no access to %s: the data is stored in %s\n", account.uid, asked, substitute)
		}
	}
	return "", nil, fmt.Errorf("the user who runs PostgreSQL has no access to %s or %s: choose another folder", asked, substitute)
}

// enter creates the folder for the account if it is missing, and reports whether the account can use it. If the folder
// exists, enter changes only its owner, and only from root; a folder of another user stays unchanged.
func enter(folder string, account *account) (bool, error) {
	parent := filepath.Dir(folder)
	for _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(parent) {
		parent = filepath.Dir(parent)
	}
	if !account.canEnter(parent) {
		return false, nil
	}
	if err := createFolders(filepath.Dir(folder)); err != nil {
		return false, err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	info, err := os.Stat(folder)
	if err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
		err = account.own(folder)
	}
	return err == nil && account.canEnter(folder), err
}

// resolve follows the symbolic links in a path, because the target of a link has other parents. The end of the path may
// not exist yet.
func resolve(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolve(parent), filepath.Base(path))
	}
	return path
}

// createFolders creates the missing folders of a path. PostgreSQL's user can enter folders of root, whatever the umask
// is.
func createFolders(path string) error {
	if os.Geteuid() != 0 {
		return os.MkdirAll(path, 0o700)
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := createFolders(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, 0o755)
}

// openFile opens a file for the owner. It follows no symbolic link, because the owner may be less trusted than this
// process.
func openFile(path string, flag int, owner *account) (*os.File, error) {
	file, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW, 0o600)
	if err != nil || owner == nil {
		return file, err
	}
	if err := file.Chown(int(owner.uid), int(owner.gid)); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// lockFile locks a file in a way of flock(2). The lock ends with the process at the latest.
func lockFile(path string, owner *account, how int) (*os.File, error) {
	file, err := openFile(path, os.O_CREATE|os.O_RDWR, owner)
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
