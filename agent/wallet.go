package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// Settings are what an agent needs to make calls.
type Settings struct {
	// Folder keeps everything that survives a restart. Wallets have folders of their own in it. [CheckFolder] must accept it.
	Folder string
	// Signer signs the payments.
	Signer x402.Signer
	// Secrets keeps the API key.
	Secrets Secrets
	// Networks are the chains and tokens that are paid with. If nil, they are USDC on Base and on Base Sepolia.
	Networks []x402.Network
	// Chain, if not nil, is asked what the wallet has, and whether payments that the server refused can still be taken. Without it they
	// count for a day.
	Chain Chain
	// Transport sends the requests. If nil, a transport of [client.NewTransport] is used.
	Transport http.RoundTripper
}

func Open(settings Settings) (*Agent, error) {
	contract, err := LoadContract()
	if err != nil {
		return nil, err
	}
	if err := CheckFolder(settings.Folder); err != nil {
		return nil, err
	}
	// The limits of a wallet hold for all processes that pay from it.
	ledger, err := OpenLedger(filepath.Dir(LedgerFile(settings.Folder, settings.Signer.Address())))
	if err != nil {
		return nil, err
	}
	agreed := &terms{contract: contract, state: ledger.state}
	if _, err := agreed.read(); err != nil {
		return nil, errors.Join(err, ledger.db.Close())
	}
	a := &Agent{contract: contract, ledger: ledger, terms: agreed, secrets: settings.Secrets, address: settings.Signer.Address()}
	ledger.keep, ledger.chain, ledger.address, ledger.contract = a.keepSecrets, settings.Chain, a.address, contract
	transport := settings.Transport
	if transport == nil {
		transport = client.NewTransport()
	}
	transport = client.Limited(transport)
	a.payer = &client.Payer{
		Signer: settings.Signer, Budget: ledger, Journal: ledger, Terms: agreed, Networks: settings.Networks,
		Base: keyed{a, transport}, Channels: client.NewPaymentChannels(settings.Signer, channels{ledger}, maxDeposit),
	}
	a.http = &http.Client{Transport: a.payer, CheckRedirect: noRedirect}
	a.unpaid = &http.Client{Transport: transport, CheckRedirect: noRedirect}
	return a, nil
}

// WithoutWallet returns an agent that knows the contract and nothing else.
func WithoutWallet() (*Agent, error) {
	contract, err := LoadContract()
	return &Agent{contract: contract, terms: &terms{contract: contract}}, err
}

func LedgerFile(folder, address string) string {
	return filepath.Join(folder, "wallets", strings.ToLower(address), stateFile)
}

// CheckFolder returns an error if other users may write to a folder: they could change the limit and the ledger. A folder that does not
// exist is good. On Windows a user's folders are not open to others.
func CheckFolder(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look who may write to the wallet's folder: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users may write to the folder %s, so they could change the wallet's limit and settings; run: chmod go-w %[1]s, "+
			"or name another folder with PARLEY_HOME", path)
	}
	return nil
}

// keyed adds the API key to requests of the agreed server that need one, after they were stored. So it is stored in one place only. A
// refund needs none.
type keyed struct {
	agent *Agent
	base  http.RoundTripper
}

func (k keyed) RoundTrip(request *http.Request) (*http.Response, error) {
	o := k.agent.contract.At(request.Method, request.URL.Path)
	if o == nil || !o.Account || !k.agent.terms.agreed().isServer(request.URL) {
		return k.base.RoundTrip(request)
	}
	key, err := k.agent.apiKey()
	if err == nil {
		request = request.Clone(request.Context())
		request.Header.Set(keyHeader, key)
	} else if !errors.Is(err, ErrNoAccount) {
		return nil, err
	}
	return k.base.RoundTrip(request)
}

// ErrNoAccount means that the wallet has no account yet.
var ErrNoAccount = failf(ExitNoKey, "no_account", "init", "this wallet has no account")

// secretName names a field of secretFields of this wallet's account at a server: another one must not get it.
func (a *Agent) secretName(field, server string) (string, error) {
	address, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	return field + " " + strings.ToLower(a.address+" "+address.Scheme+"://"+address.Host), nil
}

func (a *Agent) secret(field string) (string, error) {
	name, err := a.secretName(field, a.Server())
	if err != nil {
		return "", err
	}
	return a.secrets.Load(name)
}

func (a *Agent) apiKey() (string, error) {
	key, err := a.secret(apiKeyField)
	if errors.Is(err, ErrNoSecret) {
		return "", ErrNoAccount
	}
	return key, err
}

// keepSecrets stores the API key and the TAN of the response to an open call before the response is.
func (a *Agent) keepSecrets(ctx context.Context, id string, body []byte) error {
	var response map[string]any
	_ = json.Unmarshal(body, &response) // anything but an object has no secrets
	for _, field := range secretFields {
		secret, ok := response[field].(string)
		if !ok {
			continue
		}
		server, err := value[string](ctx, a.ledger.db, "SELECT signed ->> 'URL' FROM calls WHERE id = ?", id)
		var name string
		if err == nil {
			name, err = a.secretName(field, server)
		}
		if err == nil {
			err = a.secrets.Save(name, secret)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) HasAccount() (bool, error) {
	_, err := a.apiKey()
	if errors.Is(err, ErrNoAccount) {
		return false, nil
	}
	return err == nil, err
}

// Refund asks the server for the part of the deposits in the payment channel that it did not charge, and returns the amount in atomic
// units. It needs no account; the API key of one goes with it ([keyed]), because that proves more than a voucher that was claimed and is
// public. A server that does not answer cannot keep that part: the wallet can withdraw it on the blockchain.
func (a *Agent) Refund(ctx context.Context) (uint64, error) {
	refunded, err := a.payer.Refund(ctx, a.Server()+a.contract[operationGetOwnAgent].Path, "")
	if refused, ok := errors.AsType[*client.RefundError](err); ok {
		err = refusalOf(refused.Status, refused.RetryAfter, refused.ParleyError)
	}
	return refunded, err
}

func (a *Agent) Close() {
	a.http.CloseIdleConnections()
	_ = a.ledger.db.Close() // what was written is on the disk
}

// Deposited returns what payment channels have of the wallet's money that is not charged, as far as the wallet knows, in atomic units.
func (a *Agent) Deposited() (uint64, error) { return a.payer.Deposited() }

func (a *Agent) Ledger() *Ledger { return a.ledger }

func (a *Agent) Server() string { return a.terms.agreed().Server }

func (a *Agent) Address() string { return a.address }
