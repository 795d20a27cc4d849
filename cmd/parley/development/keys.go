package development

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files in the data folder.
const (
	authorizerKey = "authorizer-key"
	responseKey   = "response-key"
)

// ownKey returns the file of a key in the data folder of dev. It creates a random key at the first start: the database belongs to it.
func ownKey(data, name string) (string, error) {
	path := filepath.Join(data, name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	err := os.WriteFile(path+".new", fmt.Appendf(nil, "%x\n", key), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return path, err
}
