//go:build unix

package lockfile

import (
	"errors"
	"os"
)

// syncFolder makes a renamed file survive a power failure.
func syncFolder(path string) error {
	folder, err := os.Open(path) //nolint:gosec // the caller's own folder
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
