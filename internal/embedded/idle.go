//go:build unix

package embedded

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Idle is a folder whose cluster nobody uses, for a copy of the data. It keeps other processes out until Close.
type Idle struct {
	folder string
	user   *account
	lock   *os.File
}

// Lock returns the folder of Options.Folder, idle. It returns an error if a process uses it. It stops the PostgreSQL of a process that
// was killed.
func Lock(ctx context.Context, folder string, progress io.Writer) (*Idle, error) {
	folder, user, lock, err := lockFolder(folder, progress)
	if err != nil {
		return nil, err
	}
	i := &Idle{folder: folder, user: user, lock: lock}
	if err := stopLeftover(ctx, i.Data(), user, progress); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// Close lets other processes use the folder.
func (i *Idle) Close() error { return unlockFile(i.lock) }

// Data returns the folder of the cluster. It does not exist if there is no cluster yet.
func (i *Idle) Data() string { return filepath.Join(i.folder, "data") }

// HasCluster reports whether there is a cluster.
func (i *Idle) HasCluster() (bool, error) {
	version, err := clusterVersion(i.Data())
	return version != 0, err
}

// Restore makes the cluster from files that fill writes into an empty folder. A process that is killed meanwhile leaves no cluster.
func (i *Idle) Restore(fill func(folder string) error) error {
	folder := i.Data() + ".new"
	defer func() { _ = os.RemoveAll(folder) }() // after success the folder no longer exists
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700)); err != nil {
		return err
	}
	if err := fill(folder); err != nil {
		return err
	}
	if version, err := clusterVersion(folder); err != nil || version == 0 {
		return errors.Join(errors.New("the files are no PostgreSQL cluster"), err)
	}
	err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error { return errors.Join(err, i.user.own(path)) })
	if err != nil {
		return err
	}
	return os.Rename(folder, i.Data())
}
