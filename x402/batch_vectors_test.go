package x402

import (
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/parley-chat/parley/x402/evm"
)

// The keys of the vectors: the accounts 0 (payer) and 2 (receiverAuthorizer) of the mnemonic "test test ... junk".
const (
	batchPayerKey      = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	batchAuthorizerKey = "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a"

	batchPayer      = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
	batchReceiver   = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	batchAuthorizer = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
	batchSalt       = "0x0000000000000000000000000000000000000000000000000000000000000000"
)

// batchVectors were made with the official packages; the official contract accepted the vouchers.
type batchVectors struct {
	DomainSeparator string        `json:"domainSeparator"`
	ChannelConfig   ChannelConfig `json:"channelConfig"`
	ChannelID       string        `json:"channelId"`
	Vouchers        []struct {
		MaxClaimableAmount string `json:"maxClaimableAmount"`
		Digest             string `json:"digest"`
		Signature          string `json:"signature"`
	} `json:"vouchers"`
	ClaimBatch struct {
		Digest    string `json:"digest"`
		Signature string `json:"signature"`
	} `json:"claimBatch"`
	Refund struct {
		Nonce     string `json:"nonce"`
		Amount    string `json:"amount"`
		Digest    string `json:"digest"`
		Signature string `json:"signature"`
	} `json:"refund"`
	Deposit struct {
		Amount      string `json:"amount"`
		Salt        string `json:"salt"`
		ValidAfter  string `json:"validAfter"`
		ValidBefore string `json:"validBefore"`
		Nonce       string `json:"nonce"`
		Digest      string `json:"digest"`
		Signature   string `json:"signature"`
	} `json:"deposit"`
}

func readBatchVectors(t testing.TB) (typeHashes map[string]string, byNetwork map[string]batchVectors) {
	t.Helper()
	raw, err := os.ReadFile("testdata/batch-vectors.json")
	noError(t, "set-up", err)
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatalf("the vectors: %v", err)
	}
	byNetwork = map[string]batchVectors{}
	for name, value := range all {
		if name == "typehashes" {
			err = json.Unmarshal(value, &typeHashes)
		} else {
			var vectors batchVectors
			err = json.Unmarshal(value, &vectors)
			byNetwork[name] = vectors
		}
		if err != nil {
			t.Fatalf("the vectors of %s: %v", name, err)
		}
	}
	return typeHashes, byNetwork
}

func keyOf(t testing.TB, digits string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := evm.HexToECDSA(digits)
	noError(t, "set-up", err)
	return key
}

func wantHex(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}

func TestBatchTypeHashes(t *testing.T) {
	t.Parallel()
	hashes, _ := readBatchVectors(t)
	for name, hash := range map[string]evm.Hash{
		"EIP712Domain": domainTypeHash, "ChannelConfig": channelTypeHash, "Voucher": voucherTypeHash, "Refund": refundTypeHash,
		"ClaimEntry": claimEntryTypeHash, "ClaimBatch": claimBatchTypeHash, "ReceiveWithAuthorization": receiveTypeHash,
	} {
		wantHex(t, "the type hash of "+name, hash.Hex(), hashes[name])
	}
	if len(hashes) != 7 {
		t.Errorf("there are vectors of %d types, want 7", len(hashes))
	}
}

func TestBatchVectors(t *testing.T) {
	t.Parallel()
	_, all := readBatchVectors(t)
	if len(all) != 2 {
		t.Fatalf("there are vectors of %d networks, want 2", len(all))
	}
	payer, authorizer := keyOf(t, batchPayerKey), keyOf(t, batchAuthorizerKey)
	for id, want := range all {
		network := knownNetwork(t, id)
		domain := NewBatchDomain(network.ChainID)
		separator := domain.Separator()
		wantHex(t, "the domain separator of "+id, hexString(separator[:]), want.DomainSeparator)
		channel, err := domain.ChannelID(want.ChannelConfig)
		if err != nil {
			t.Fatalf("the channel of %s: %v", id, err)
		}
		wantHex(t, "the channel id of "+id, channel, want.ChannelID)
		for _, vector := range want.Vouchers {
			digest, err := domain.VoucherDigest(channel, vector.MaxClaimableAmount)
			if err != nil {
				t.Fatalf("the voucher %s: %v", vector.MaxClaimableAmount, err)
			}
			wantHex(t, "the voucher's digest", hexString(digest[:]), vector.Digest)
			amount, _ := channelAmount(vector.MaxClaimableAmount)
			voucher, err := domain.SignVoucher(t.Context(), NewKeySigner(payer), channel, amount)
			noError(t, "sign a voucher", err)
			wantHex(t, "the voucher's signature", voucher.Signature, vector.Signature)
			if err := domain.VerifyVoucher(voucher, batchPayer); err != nil {
				t.Errorf("the vector's voucher is refused: %v", err)
			}
		}
		testAuthorizerVectors(t, domain, authorizer, want)
		testDepositVector(t, knownDomain(t, id), payer, want)
	}
}

func testAuthorizerVectors(t *testing.T, domain BatchDomain, authorizer *ecdsa.PrivateKey, want batchVectors) {
	t.Helper()
	newest := want.Vouchers[1]
	claims := []VoucherClaim{NewClaim(want.ChannelConfig, Voucher{want.ChannelID, newest.MaxClaimableAmount, newest.Signature})}
	digest, err := domain.ClaimBatchDigest(claims)
	noError(t, "the claims", err)
	wantHex(t, "the digest of the claims", hexString(digest[:]), want.ClaimBatch.Digest)
	signature, err := domain.SignClaims(authorizer, claims)
	noError(t, "sign claims", err)
	wantHex(t, "the signature of the claims", signature, want.ClaimBatch.Signature)

	nonce, _ := channelAmount(want.Refund.Nonce)
	amount, _ := channelAmount(want.Refund.Amount)
	digest, err = domain.RefundDigest(want.ChannelID, nonce, amount)
	noError(t, "the refund", err)
	wantHex(t, "the refund's digest", hexString(digest[:]), want.Refund.Digest)
	signature, err = domain.SignRefund(authorizer, want.ChannelID, nonce, amount)
	noError(t, "sign a refund", err)
	wantHex(t, "the refund's signature", signature, want.Refund.Signature)
}

func testDepositVector(t *testing.T, token Domain, payer *ecdsa.PrivateKey, want batchVectors) {
	t.Helper()
	vector := want.Deposit
	deposit := ChannelDeposit{vector.Amount, DepositAuthorization{ERC3009Deposit{
		ValidAfter: vector.ValidAfter, ValidBefore: vector.ValidBefore, Salt: vector.Salt,
	}}}
	nonce, err := DepositNonce(want.ChannelID, vector.Salt)
	noError(t, "the deposit's nonce", err)
	wantHex(t, "the deposit's nonce", nonce, vector.Nonce)
	digest, err := token.DepositDigest(batchPayer, want.ChannelID, deposit)
	noError(t, "the deposit", err)
	wantHex(t, "the deposit's digest", hexString(digest[:]), vector.Digest)
	signature, err := sign(payer, digest)
	noError(t, "sign a deposit", err)
	wantHex(t, "the deposit's signature", signature, vector.Signature)
}

// TestBatchDigestsDiffer: nothing that is signed for one chain, contract, channel or amount is valid for another.
func TestBatchDigestsDiffer(t *testing.T) {
	t.Parallel()
	_, all := readBatchVectors(t)
	good := all[NetworkBaseSepolia].ChannelConfig
	domain := NewBatchDomain(84532)
	seen := map[string]string{}
	add := func(name, hash string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[hash] = name
	}
	for name, change := range map[string]func(c *ChannelConfig){
		"the channel":                func(*ChannelConfig) {},
		"another payer":              func(c *ChannelConfig) { c.Payer = batchReceiver },
		"another payerAuthorizer":    func(c *ChannelConfig) { c.PayerAuthorizer = batchReceiver },
		"another receiver":           func(c *ChannelConfig) { c.Receiver = batchPayer },
		"another receiverAuthorizer": func(c *ChannelConfig) { c.ReceiverAuthorizer = batchPayer },
		"another token":              func(c *ChannelConfig) { c.Token = batchPayer },
		"another delay":              func(c *ChannelConfig) { c.WithdrawDelay = 900 },
		"another salt":               func(c *ChannelConfig) { c.Salt = "0x" + strings.Repeat("0", 63) + "1" },
	} {
		config := good
		change(&config)
		id, err := domain.ChannelID(config)
		add(name, id, err)
	}
	id, err := NewBatchDomain(8453).ChannelID(good)
	add("the channel on another chain", id, err)
	other, err := NewDomain("x402 Batch Settlement", "1", 84532, DepositCollectorContract)
	noError(t, "set-up", err)
	id, err = BatchDomain{other}.ChannelID(good)
	add("the channel of another contract", id, err)
	for _, malformed := range []func(c *ChannelConfig){
		func(c *ChannelConfig) { c.Payer = c.Payer[:41] }, func(c *ChannelConfig) { c.Token = "USDC" },
		func(c *ChannelConfig) { c.WithdrawDelay = 1 << 40 }, func(c *ChannelConfig) { c.Salt = "0x00" },
	} {
		config := good
		malformed(&config)
		if id, err := domain.ChannelID(config); err == nil {
			t.Errorf("the malformed channel %+v has the id %s", config, id)
		}
	}
}
