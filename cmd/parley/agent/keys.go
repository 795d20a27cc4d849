package agent

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Places are the places for keys that --secrets names.
var Places = []string{agent.PlaceKeyring, agent.PlaceEncrypted, agent.PlaceFile}

// walletKeyName names the wallet's private key in a place for secrets.
const walletKeyName = "wallet key"

var walletAddress = regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`)

// errNoWallet means that no key is configured.
var errNoWallet = errors.New("there is no wallet yet; make one with: parley init")

// errNoKey means that the key of a wallet that exists cannot be found.
var errNoKey = errors.New("set PARLEY_WALLET_KEY_FILE, PARLEY_WALLET_KEY or PARLEY_SIGNER again if its key came from there")

// errNoPassphrase means that the encrypted keys cannot be read.
var errNoPassphrase = errors.New("the keys are in an encrypted file; name its passphrase with PARLEY_PASSPHRASE_FILE or PARLEY_PASSPHRASE")

// errNoPlace means that no safe place for secrets was found.
var errNoPlace = errors.New(
	"this system has no keyring for the keys. Choose one: --secrets encrypted with a passphrase in PARLEY_PASSPHRASE_FILE, " +
		"PARLEY_SIGNER with PARLEY_SIGNER_ADDRESS for an external signer and --secrets for the API key, or --secrets file for a plaintext file",
)

// externalSigner returns the signer that the environment names, and where its key is, or nil.
func (s *session) externalSigner() (x402.Signer, string, error) {
	if command := cmp.Or(os.Getenv("PARLEY_SIGNER"), s.config.Signer); command != "" {
		wallet := cmp.Or(os.Getenv("PARLEY_SIGNER_ADDRESS"), s.config.Address)
		if !walletAddress.MatchString(wallet) {
			return nil, "", errors.New("PARLEY_SIGNER needs the address of its key, 0x and 40 hex digits, in PARLEY_SIGNER_ADDRESS")
		}
		return agent.CommandSigner{Command: command, Wallet: evm.HexToAddress(wallet).Hex()}, "signer command", nil
	}
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
	signer, place, err := s.externalSigner()
	if err != nil || signer != nil {
		s.keyPlace = place
		return signer, err
	}
	digits, err := s.secrets.Load(walletKeyName)
	if errors.Is(err, agent.ErrNoSecret) && s.config.Address != "" {
		return nil, fmt.Errorf("the key of the wallet %s in the folder %s is not in the place %q, the folder was made with the place %q; %w",
			s.config.Address, s.home, s.secrets.Place(), s.config.Secrets, errNoKey)
	}
	if errors.Is(err, agent.ErrNoSecret) {
		return nil, s.noKey()
	}
	if err != nil {
		return nil, err
	}
	s.keyPlace = s.secrets.Place()
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

// noKey returns errNoWallet, or an error that names the wallet of a folder whose settings are lost: no second one may be made there.
func (s *session) noKey() error {
	wallets, _ := filepath.Glob(filepath.Join(s.home, "wallets", "0x*"))
	if len(wallets) == 0 {
		return errNoWallet
	}
	return fmt.Errorf("config.json is missing in the folder %s, and the key of its wallet %s is not in the place %q: name the place with "+
		"--secrets, put the file back, or %w", s.home, filepath.Base(wallets[0]), s.secrets.Place(), errNoKey)
}

// makeSigner returns the signer, and makes a new key if there is none.
func (s *session) makeSigner() (signer x402.Signer, made bool, err error) {
	if signer, err = s.loadSigner(); !errors.Is(err, errNoWallet) {
		return signer, false, err
	}
	key, err := evm.GenerateKey()
	if err != nil {
		return nil, false, err
	}
	if err := s.secrets.Save(walletKeyName, hex.EncodeToString(evm.FromECDSA(key))); err != nil {
		return nil, false, fmt.Errorf("store the wallet's key: %w", err)
	}
	s.keyPlace = s.secrets.Place()
	return x402.NewKeySigner(key), true, nil
}

// choosePlace returns the place for secrets: the one that was named, the one of an earlier start, or the first that works. A plaintext
// file is chosen only for play money.
func (s *session) choosePlace(playMoney bool) (string, error) {
	if named := cmp.Or(s.flags.Secrets, s.config.Secrets); named != "" {
		return named, nil
	}
	for _, place := range Places {
		if _, err := os.Stat(agent.SecretsFile(place, s.home)); err == nil { // the settings are lost
			return place, nil
		}
	}
	switch {
	case agent.HasKeyring():
		return agent.PlaceKeyring, nil
	case os.Getenv("PARLEY_PASSPHRASE_FILE") != "" || os.Getenv("PARLEY_PASSPHRASE") != "":
		return agent.PlaceEncrypted, nil
	case playMoney:
		return agent.PlaceFile, nil
	case s.Person():
		return agent.PlaceEncrypted, nil
	}
	return "", errNoPlace
}

// passphrase returns the passphrase of the encrypted file.
func (s *session) passphrase() (string, error) {
	if name := os.Getenv("PARLEY_PASSPHRASE_FILE"); name != "" {
		content, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read the file in PARLEY_PASSPHRASE_FILE: %w", err)
		}
		return notEmpty(strings.TrimRight(string(content), "\r\n"))
	}
	if text := os.Getenv("PARLEY_PASSPHRASE"); text != "" {
		return text, nil
	}
	if !s.Person() {
		return "", errNoPassphrase
	}
	const question = "Passphrase for the keys: "
	if s.newSecrets {
		return s.newPassphrase(question)
	}
	text, err := s.AskSecret(question)
	if err != nil {
		return "", err
	}
	return notEmpty(text)
}

func notEmpty(passphrase string) (string, error) {
	if passphrase == "" {
		return "", errors.New("the passphrase is empty")
	}
	return passphrase, nil
}
