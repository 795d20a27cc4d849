package devnet

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/parley-chat/parley/x402"
)

func (f *Facilitator) serveSupported(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, x402.SupportedResponse{
		Kinds: []x402.SupportedKind{
			{X402Version: x402.Version, Scheme: x402.SchemeExact, Network: NetworkID},
			{X402Version: x402.VersionV1, Scheme: x402.SchemeExact, Network: token.V1Name},
			{X402Version: x402.Version, Scheme: x402.SchemeBatch, Network: NetworkID},
		},
	})
}

func (f *Facilitator) serveAccounts(w http.ResponseWriter, _ *http.Request) {
	var accounts []map[string]string
	for _, a := range Accounts() {
		accounts = append(accounts, map[string]string{"address": a.Address, "private_key": a.PrivateKey, "balance": f.balance(a.Address)})
	}
	respond(w, http.StatusOK, accounts)
}

func (f *Facilitator) serveBalance(w http.ResponseWriter, r *http.Request) {
	address := r.PathValue("address")
	if !addressForm.MatchString(strings.ToLower(address)) {
		reject(w, http.StatusBadRequest, "an address is 0x and 40 hex digits")
		return
	}
	received := f.ledger.Received(address)
	unsettled := strconv.FormatUint(received.Claimed-received.Settled, 10)
	respond(w, http.StatusOK, map[string]string{"address": address, "balance": f.balance(address), "unsettled": unsettled})
}

func (f *Facilitator) balance(address string) string {
	return strconv.FormatUint(f.ledger.Balance(address), 10)
}

// fundAmount is what POST /fund adds, in atomic units: 10 USDC.
const fundAmount = 10_000_000

// serveFund gives play money to a new wallet, as a faucet does.
func (f *Facilitator) serveFund(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Address string `json:"address"`
	}
	if err := json.UnmarshalRead(r.Body, &request); err != nil || !addressForm.MatchString(strings.ToLower(request.Address)) {
		reject(w, http.StatusBadRequest, `the body is not {"address": "0x…"} with 40 hex digits`)
		return
	}
	if err := f.ledger.Mint(request.Address, fundAmount); err != nil {
		reject(w, http.StatusInternalServerError, err.Error())
		return
	}
	respond(w, http.StatusOK, map[string]string{"address": request.Address, "balance": f.balance(request.Address)})
}

// serveCancel does the same as cancelAuthorization of the token contract.
func (f *Facilitator) serveCancel(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Authorizer string `json:"authorizer"`
		Nonce      string `json:"nonce"`
		Signature  string `json:"signature"`
	}
	if err := json.UnmarshalRead(r.Body, &request); err != nil {
		reject(w, http.StatusBadRequest, "the body is not the JSON object {authorizer, nonce, signature} of at most 64 KiB")
		return
	}
	digest, err := tokenDomain.CancelDigest(request.Authorizer, request.Nonce)
	if err != nil {
		reject(w, http.StatusBadRequest, err.Error())
		return
	}
	signer, err := x402.RecoverHex(digest, request.Signature)
	if err != nil || !strings.EqualFold(signer, request.Authorizer) {
		reject(w, http.StatusBadRequest, "the signature is not a CancelAuthorization by the authorizer")
		return
	}
	switch err := f.ledger.Cancel(request.Authorizer, request.Nonce); {
	case errors.Is(err, errAuthorizationUsed):
		reject(w, http.StatusConflict, err.Error())
	case err != nil:
		reject(w, http.StatusInternalServerError, err.Error())
	default:
		respond(w, http.StatusOK, map[string]any{"success": true, "transaction": newTransaction()})
	}
}
