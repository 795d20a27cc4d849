package devnet

import (
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
