package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zalando/go-keyring"

	"github.com/parley-chat/parley/internal/lockfile"
)

// The places for secrets: the private key of a wallet and the API key of an account.
const (
	PlaceKeyring = "keyring" // the operating system's
	PlaceFile    = "file"    // secrets.json in the folder, with mode 0600
)

type Secrets interface {
	Load(name string) (string, error)
	Save(name, value string) error
	// Place is one of the places above.
	Place() string
}

// ErrNoSecret means that a place does not have a secret.
var ErrNoSecret = errors.New("the secret is not there")

// ErrNoKeyring means that the operating system has no keyring that this process can use.
var ErrNoKeyring = failf(ExitNoKey, "no_keyring", "init --secrets file", "this system has no keyring; use --secrets file")

func OpenSecrets(place, folder string) (Secrets, error) {
	switch place {
	case PlaceKeyring:
		return systemKeyring{folder}, nil
	case PlaceFile:
		return &secretFile{SecretsFile(folder)}, nil
	}
	return nil, fmt.Errorf("there is no place for secrets named %q; the places are %s and %s", place, PlaceKeyring, PlaceFile)
}

// SecretsFile returns the path of the file in which [PlaceFile] keeps the secrets of a folder.
func SecretsFile(folder string) string { return filepath.Join(folder, "secrets.json") }

// HasKeyring tries whether a secret can be kept in the operating system's keyring.
func HasKeyring() bool {
	const service, user = "parley-probe", "probe"
	if keyring.Set(service, user, "probe") != nil {
		return false
	}
	value, err := keyring.Get(service, user)
	return keyring.Delete(service, user) == nil && err == nil && value == "probe"
}

// systemKeyring is the operating system's keyring: Keychain, Credential Manager, or Secret Service.
type systemKeyring struct{ folder string }

func (systemKeyring) Place() string { return PlaceKeyring }

func (k systemKeyring) service() string { return "parley " + k.folder }

func (k systemKeyring) Load(name string) (string, error) {
	value, err := keyring.Get(k.service(), name)
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return "", ErrNoSecret
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrNoKeyring, err)
	}
	return value, nil
}

func (k systemKeyring) Save(name, value string) error {
	if err := keyring.Set(k.service(), name, value); err != nil {
		return fmt.Errorf("%w: %w", ErrNoKeyring, err)
	}
	return nil
}

type secretFile struct{ path string }

func (*secretFile) Place() string { return PlaceFile }

func (f *secretFile) Load(name string) (string, error) {
	all, err := f.read()
	if err != nil {
		return "", err
	}
	value, ok := all[name]
	if !ok {
		return "", ErrNoSecret
	}
	return value, nil
}

func (f *secretFile) Save(name, value string) error {
	lock, err := lockfile.Wait(context.Background(), f.path+".lock")
	if err != nil {
		return err
	}
	defer lock.Release()
	all, err := f.read()
	if err != nil {
		return err
	}
	all[name] = value
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return lockfile.Replace(f.path, text)
}

func (f *secretFile) read() (map[string]string, error) {
	text, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	var all map[string]string
	if json.Unmarshal(text, &all) != nil {
		return nil, fmt.Errorf("%s is damaged: put a copy back", f.path) // the library's message may quote a secret
	}
	return all, nil
}
