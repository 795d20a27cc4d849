package devnet

import (
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
)

// TestChannelsOnChain: a deposit is an authorization like others, and old blocks have old states.
func TestChannelsOnChain(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	alice := Accounts()[0]
	signer := w.payer(alice, 0)
	deposit := w.sign(signer, 1000, 5000)
	since := time.Now()
	settled := w.wantSettled(w.facilitator.SettleDeposit(t.Context(), deposit, w.offer))
	depositNonce, err := x402.DepositNonce(signer.ID, deposit.Payload.Deposit.Authorization.ERC3009.Salt)
	noError(t, err)
	used, err := w.chain.Authorization(t.Context(), token.Asset, alice.Address, depositNonce, since)
	if err != nil || !used.Used || used.To != strings.ToLower(x402.DepositCollectorContract) || used.Amount != 5000 ||
		used.Transaction != settled.Transaction {
		t.Errorf("the deposit's authorization is %+v, %v", used, err)
	}
	block, _, err := w.chain.Newest(t.Context())
	noError(t, err)
	w.wantSettled(w.claim(w.claims(signer, 2000)))
	w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver))
	for transfer, err := range w.chain.Transfers(t.Context(), token.Asset, Payee, 0, block+10) {
		if err != nil || transfer.From != contractAddress || transfer.Amount != 2000 {
			t.Errorf("the payout is the transfer %+v, %v", transfer, err)
		}
	}
	if balance, err := w.chain.BalanceAt(t.Context(), token.Asset, contractAddress, block); err != nil || balance != 5000 {
		t.Errorf("the contract had %d, %v before the payout, want 5000", balance, err)
	}
	old := `"0x` + strconv.FormatUint(block, 16) + `"`
	config := signer.Config
	words := ""
	for _, address := range []string{config.Payer, config.PayerAuthorizer, config.Receiver, config.ReceiverAuthorizer, config.Token} {
		words += strings.Repeat("0", 24) + strings.ToLower(address[2:])
	}
	words += nonce(86_400)[2:] + config.Salt[2:]
	selector := func(signature string) string { return "0x" + hex.EncodeToString([]byte(selectorOf(signature))) }
	for data, want := range map[string]string{
		selector("channels(bytes32)") + signer.ID[2:] + `"},"latest"`:                                              nonce(5000) + nonce(2000)[2:],
		selector("channels(bytes32)") + signer.ID[2:] + `"},` + old:                                                nonce(5000) + nonce(0)[2:],
		selector("channels(bytes32)") + `"},"latest"`:                                                              "execution reverted",
		selector("getChannelId((address,address,address,address,address,uint40,bytes32))") + words + `"},"latest"`: signer.ID,
		selector("getVoucherDigest(bytes32,uint128)") + signer.ID[2:] + nonce(1)[2:] + `"},"latest"`:               "0x",
		selector("receivers(address,address)") + words[:64] + words[:64] + `"},"latest"`:                           nonce(0) + nonce(0)[2:],
		selector("settle(address,address)") + words[:128] + `"},"latest"`:                                          "execution reverted",
		"0x12" + `"},"latest"`: "execution reverted",
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"` + x402.BatchSettlementContract + `","data":"` + data + `]}`
		if _, reply := call(t, http.MethodPost, w.facilitator.BaseURL+"/rpc", body); !strings.Contains(reply, want) {
			t.Errorf("eth_call of %s: %s, want %s", data, reply, want)
		}
	}
	if code, err := w.chain.HasCode(t.Context(), x402.BatchSettlementContract); err != nil || !code {
		t.Errorf("the contract has code: %t, %v", code, err)
	}
}
