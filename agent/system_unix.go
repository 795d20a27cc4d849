//go:build unix

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Shell returns a command of the user's own configuration.
func Shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", command)
}

// CheckFolder returns an error if other users of the machine could change what is in a folder: write to it or to a folder above it, or
// own one of them. They could replace the settings, which name the command that signs, the limits and the ledger. Folders above it that
// everybody may write to are good if they are sticky, as /tmp is. A folder that does not exist is good if nobody else could make it.
func CheckFolder(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	wallet, err := filepath.EvalSymlinks(path)
	folder := wallet
	for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		folder, err = filepath.EvalSymlinks(path)
	}
	for before := ""; err == nil && folder != before; before, folder = folder, filepath.Dir(folder) {
		err = checkOwner(folder, folder == wallet)
	}
	return err
}

// checkOwner checks who may write to one folder.
func checkOwner(folder string, isWallet bool) error {
	info, owner, group, err := ownerOf(folder)
	if err != nil {
		return err
	}
	mode := info.Mode()
	if othersWrite(mode, owner, group) && (isWallet || mode&fs.ModeSticky == 0) {
		return fmt.Errorf("other users may write to the folder %s, so they could change the wallet's limits and settings; "+
			"run: chmod go-w %[1]s, or name a folder in your home with PARLEY_HOME", folder)
	}
	if !trusted(folder, owner, isWallet) {
		return fmt.Errorf("the folder %s is owned by another user, who could change the wallet's limits and settings; "+
			"name a folder in your home with PARLEY_HOME", folder)
	}
	return nil
}

// othersWrite reports whether others than the owner of a folder may write to it. Many systems make a group for each user, with the same
// number, and let it write.
func othersWrite(mode fs.FileMode, owner, group uint32) bool {
	return mode.Perm()&0o002 != 0 || mode.Perm()&0o020 != 0 && group != 0 && group != owner
}

// unmapped is the user that Linux shows as the owner of a folder whose owner is no user of the namespace, such as root's in a sandbox.
const unmapped = 65534

// trusted reports whether the owner of a folder may change the wallet. Root trusts the owners of folders that not everybody could make,
// such as the volumes of a container.
func trusted(folder string, owner uint32, isWallet bool) bool {
	self := uint32(os.Geteuid()) //nolint:gosec // not negative on Unix
	switch {
	case owner == self || owner == 0:
		return true
	case owner == unmapped:
		return !isWallet
	case self != 0:
		return false
	}
	info, above, group, err := ownerOf(filepath.Dir(folder))
	return err == nil && !othersWrite(info.Mode(), above, group)
}

func ownerOf(folder string) (info fs.FileInfo, owner, group uint32, err error) {
	if info, err = os.Stat(folder); err != nil {
		return nil, 0, 0, fmt.Errorf("look who may write to the wallet's folder: %w", err)
	}
	system, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, 0, 0, fmt.Errorf("the owner of the folder %s is not known", folder)
	}
	return info, system.Uid, system.Gid, nil
}
