package development

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/parley-chat/parley/cmd/parley/settings"
)

// Files in the data folder.
const (
	authorizerKey = "authorizer-key"
	serverSecret  = "server-secret"
)

// ownKey reads a key from the data folder of dev. It creates a random key at the first start: the database belongs to it.
func ownKey(data, name string) (key settings.Secret, err error) {
	path := filepath.Join(data, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		var made [32]byte
		_, _ = rand.Read(made[:])
		if err := os.WriteFile(path+".new", fmt.Appendf(nil, "%x\n", made), 0o600); err != nil {
			return key, err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return key, err
		}
	}
	err = key.UnmarshalText([]byte("file:" + path))
	return key, err
}
