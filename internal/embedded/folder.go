//go:build unix

package embedded

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that runs PostgreSQL if this process runs as root, because PostgreSQL refuses to run as root. Nil
// is the user of this process.
type account struct {
	uid, gid uint32
	name     string
}

// own changes the owner of a folder to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// clusterAccount returns the account for a process that runs as root: the owner of the folder's cluster, so that the
// data keeps its owner after a restart as root, or when a user named postgres is added. Without a cluster it is the
// user postgres, or nobody if there is no postgres.
func clusterAccount(folder string) (*account, error) {
	if info, err := os.Stat(filepath.Join(folder, "data")); err == nil {
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 0 {
			return &account{uid: owner.Uid, gid: owner.Gid, name: "with the id " + strconv.Itoa(int(owner.Uid))}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("id of user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group of user %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid), name: name}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it: " +
		"start parley as an ordinary user, or give --database-url")
}

// settle creates the folder and returns it with the user that runs PostgreSQL. For root the folder is one that this
// user can access.
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
		entered, err := enter(place, account)
		if err != nil {
			return "", nil, err
		}
		if entered {
			return place, account, nil
		}
		if place == asked {
			fmt.Fprintf(progress, "%s is out of reach for the user %s, who runs PostgreSQL: the data lives in %s\n",
				asked, account.name, substitute)
		}
	}
	return "", nil, fmt.Errorf("neither %s nor %s is within reach of the user who runs PostgreSQL: choose another folder", asked, substitute)
}

// enter creates the folder for the account if it is missing, and reports whether the account can access it. If the folder
// exists, enter changes only its owner, and only from root; a folder of another user stays unchanged.
func enter(folder string, account *account) (bool, error) {
	if !reachable(folder, account) {
		return false, nil
	}
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := createFolders(filepath.Dir(folder)); err != nil {
			return false, err
		}
		if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		return true, account.own(folder)
	case err != nil:
		return false, err
	case searchable(info, account):
		return true, nil
	case info.Sys().(*syscall.Stat_t).Uid == 0:
		return true, account.own(folder)
	}
	return false, nil
}

// reachable reports whether the account can pass through all existing parents of the folder.
func reachable(folder string, account *account) bool {
	if account == nil {
		return true
	}
	for parent := filepath.Dir(folder); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err == nil && !searchable(info, account) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		if parent == filepath.Dir(parent) {
			return true
		}
	}
}

func searchable(folder fs.FileInfo, account *account) bool {
	owner := folder.Sys().(*syscall.Stat_t)
	switch {
	case !folder.IsDir():
		return false
	case owner.Uid == account.uid:
		return folder.Mode()&0o100 != 0
	case owner.Gid == account.gid:
		return folder.Mode()&0o010 != 0
	}
	return folder.Mode()&0o001 != 0
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

var errLocked = errors.New("locked by another process")

// lockFile takes the lock of a folder, or returns errLocked. The lock ends with the process at the latest.
func lockFile(path string, owner *account) (*os.File, error) {
	file, err := openFile(path, os.O_CREATE|os.O_RDWR, owner)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return file, nil
}

// unlockFile unlocks explicitly, because a child process shares the open file between fork and exec.
func unlockFile(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}

// entries returns the paths of the folder's entries whose names have this prefix.
func entries(folder, prefix string) []string {
	var paths []string
	all, _ := os.ReadDir(folder) // a folder that is missing or not readable has no entries
	for _, entry := range all {
		if strings.HasPrefix(entry.Name(), prefix) {
			paths = append(paths, filepath.Join(folder, entry.Name()))
		}
	}
	return paths
}

// removeAll removes the incomplete folders of a killed process.
func removeAll(folders []string) error {
	var err error
	for _, folder := range folders {
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}
