package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Places are the places for keys that --secrets names.
var Places = []string{agent.PlaceKeyring, agent.PlaceFile}

const walletKeyName = "wallet key"

var errNoWallet = &agent.Failure{Code: "no_account", Exit: agent.ExitNoKey, Next: "init",
	Charged: new(false), Message: "there is no wallet in this folder yet; choose a username for the account that init makes with it"}

// errNoKey means that the key of a wallet that exists cannot be found.
var errNoKey = &agent.Failure{Code: "no_key", Exit: agent.ExitNoKey, Charged: new(false),
	Message: "set PARLEY_WALLET_KEY_FILE or PARLEY_WALLET_KEY again if its key came from there"}

// externalSigner returns the signer that the environment names, and where its key is, or nil.
func externalSigner() (x402.Signer, string, error) {
	place, digits := "PARLEY_WALLET_KEY", os.Getenv("PARLEY_WALLET_KEY")
	if name := os.Getenv("PARLEY_WALLET_KEY_FILE"); name != "" {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, "", fmt.Errorf("read the file in PARLEY_WALLET_KEY_FILE: %w", err)
		}
		place, digits = "PARLEY_WALLET_KEY_FILE", string(content)
	}
	if digits == "" {
		return nil, "", nil
	}
	signer, err := x402.ParseKeySigner(strings.TrimSpace(digits))
	if err != nil {
		return nil, "", fmt.Errorf("%s has no private key of 64 hex digits", place) // the cause may quote the key
	}
	return signer, place, nil
}

// loadSigner returns the signer of the environment or of the stored key.
func (s *session) loadSigner() (x402.Signer, error) {
	signer, place, err := externalSigner()
	if err != nil || signer != nil {
		s.keyPlace = place
		return signer, err
	}
	s.keyPlace = s.secrets.Place()
	digits, err := s.secrets.Load(walletKeyName)
	wallet := s.config.Address
	if wallets, _ := filepath.Glob(filepath.Join(s.home, "wallets", "0x*")); wallet == "" && len(wallets) > 0 {
		wallet = filepath.Base(wallets[0]) // the settings are lost; no second wallet may be made here
	}
	if errors.Is(err, agent.ErrNoSecret) && wallet != "" {
		return nil, fmt.Errorf("the key of the wallet %s in the folder %s is not in the place %q; name another place with --secrets, or %w",
			wallet, s.home, s.keyPlace, errNoKey)
	}
	if errors.Is(err, agent.ErrNoSecret) {
		return nil, errNoWallet
	}
	if err != nil {
		return nil, err
	}
	stored, err := x402.ParseKeySigner(digits)
	if err != nil {
		return nil, errors.New("the stored key of the wallet is damaged")
	}
	if s.config.Address != "" && !strings.EqualFold(stored.Address(), s.config.Address) {
		return nil, fmt.Errorf("the key in the place %q is that of the wallet %s, and the folder %s is of the wallet %s: put its key back; %w",
			s.keyPlace, stored.Address(), s.home, s.config.Address, errNoKey)
	}
	return stored, nil
}

// makeSigner returns the signer, and makes a new key if there is none.
func (s *session) makeSigner() (signer x402.Signer, err error) {
	if signer, err = s.loadSigner(); !errors.Is(err, errNoWallet) {
		return signer, err
	}
	key, err := evm.GenerateKey()
	if err != nil {
		return nil, err
	}
	if err := s.secrets.Save(walletKeyName, hex.EncodeToString(evm.FromECDSA(key))); err != nil {
		return nil, fmt.Errorf("store the wallet's key: %w", err)
	}
	fmt.Fprintf(s.Err, "made the wallet %s\n", x402.NewKeySigner(key).Address())
	return x402.NewKeySigner(key), nil
}

// openSecrets opens the place for secrets: the one that was named, the one of an earlier start, or the first that works.
func (s *session) openSecrets() (err error) {
	place := cmp.Or(s.flags.Secrets, s.config.Secrets)
	if _, err := os.Stat(agent.SecretsFile(s.home)); place == "" && err == nil { // the settings are lost
		place = agent.PlaceFile
	}
	if place == "" && agent.HasKeyring() {
		place = agent.PlaceKeyring
	}
	if s.secrets, err = agent.OpenSecrets(cmp.Or(place, agent.PlaceFile), s.home); err != nil {
		return agent.Usagef("%s", err) // of --secrets
	}
	return nil
}

type walletExport struct {
	File string `arg:"" help:"A file that does not exist."`
}

func (c *walletExport) Run(ctx context.Context, s *session) error {
	if c.File == "-" {
		return agent.Usagef("the private key is written to a new file, not to standard output")
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	digits, err := s.secrets.Load(walletKeyName)
	if errors.Is(err, agent.ErrNoSecret) {
		return fmt.Errorf("the key of this wallet is not stored here; it comes from: %s", s.keyPlace)
	}
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return agent.Usagef("%s exists; name a new file", agent.VisibleName(c.File))
	}
	if err != nil {
		return fmt.Errorf("write the private key: %w", err)
	}
	_, err = fmt.Fprintln(file, digits)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return s.print(nil, agent.Shown(object{"file": c.File,
		"message": "the private key is in this file, readable by you only; who has it has the money"}))
}
