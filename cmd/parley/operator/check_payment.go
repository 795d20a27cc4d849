package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// trialPath is the operation that needs no account and costs least.
	trialPath = "/register/request_account"
	// trialTime is the patience of the trial payment: a settlement can take a minute.
	trialTime = 90 * time.Second
	// lagTime is how far the endpoint may be behind the facilitator's.
	lagTime = 10 * time.Second
)

// checkPayment pays one call through the public URL and looks for the money in the response, in the ledger and on the blockchain. The
// call asks for an account name that nobody wants; it is forgotten after ten minutes.
func (c *check) checkPayment(ctx context.Context, config server.Config) (found findings) {
	const what = "payment"
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	payer, price, err := c.trialPayer(config)
	if err != nil {
		return found.fail(what, err.Error(), "name a file with the private key of a wallet, 64 hex digits, that holds only a few cents")
	}
	chain := &x402.Chain{URL: c.RPCURL.Value}
	if balance, err := chain.Balance(ctx, config.Network.Asset, payer.Address()); err != nil || balance < price {
		return found.fail(what,
			fmt.Sprintf("the wallet %s has %s USD of the %s that the call costs", payer.Address(), x402.FormatUSD(balance), x402.FormatUSD(price)),
			"send it some of the token "+config.Network.Asset+" on "+config.Network.ID)
	}
	if err := trial(ctx, config.BaseURL, payer); err != nil {
		return found.fail(what, err.Error(),
			"look for the request id in the server's log; parley payments list --payer "+payer.Address()+" shows whether money moved")
	}
	found.ok(what, fmt.Sprintf("%s paid %s USD for a call at %s", payer.Address(), x402.FormatUSD(price), config.BaseURL))
	record, err := c.trialRecord(ctx, config, payer.Address())
	if err != nil {
		return found.fail("ledger", err.Error(), "give the database of the server that serves "+config.BaseURL)
	}
	found.ok("ledger", "the payment is delivered, with transaction "+record.Transaction)
	if err := settledOnChain(ctx, chain, record); err != nil {
		return found.fail("blockchain", err.Error(),
			"do not go live: the facilitator says that the money moved, and the endpoint does not show it. Use others that you trust")
	}
	found.ok("blockchain", fmt.Sprintf("the transaction carries the payment of %s USD to %s", usd(record.Amount), config.PayTo))
	return found
}

// trialPayer returns the wallet, limited to the price of one call.
func (c *check) trialPayer(config server.Config) (payer *client.Payer, price uint64, err error) {
	document, err := parley.Document()
	if err == nil {
		price, err = parley.Price(document.Paths.Find(trialPath).Post)
	}
	if err != nil {
		return nil, 0, err
	}
	key, err := os.ReadFile(c.PayKeyFile)
	if err != nil {
		return nil, 0, fmt.Errorf("the file of the key cannot be read: %s", settings.Cause(err))
	}
	payer, err = client.NewPayer(strings.TrimSpace(string(key)), client.Limits{PerCall: price, Total: price})
	if err != nil {
		return nil, 0, errors.New("the file holds no private key") // the error may quote it
	}
	payer.Channels, payer.Networks, payer.Patience = nil, []x402.Network{config.Network}, trialTime
	return payer, price, nil
}

// trial makes the paid call.
func trial(ctx context.Context, baseURL string, payer *client.Payer) error {
	agent, err := client.New(baseURL, payer)
	if err != nil {
		return err
	}
	response, err := agent.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: trialName("check")})
	if err != nil {
		return fmt.Errorf("the call failed: %w", err)
	}
	if response.StatusCode() != http.StatusOK {
		return fmt.Errorf("the call returned %s, request id %s: %.300s", response.Status(), response.HTTPResponse.Header.Get("X-Request-Id"),
			response.Body)
	}
	return nil
}

// trialName is a username that nobody else asks for.
func trialName(prefix string) string { return prefix + "_" + strings.ToLower(rand.Text()[:16]) }

// trialRecord returns the payment of the trial in the ledger.
func (c *check) trialRecord(ctx context.Context, config server.Config, payer string) (*store.PaymentRecord, error) {
	database, err := store.Open(ctx, c.DatabaseURL.Value, store.Serving)
	if err != nil {
		return nil, err
	}
	defer database.Close()
	filter := store.PaymentFilter{Network: config.Network.ID, Asset: strings.ToLower(config.Network.Asset),
		PayTo: strings.ToLower(config.PayTo), Payer: strings.ToLower(payer), NewestFirst: true}
	for record, err := range database.PaymentRecords(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if record.State != store.PaymentDelivered || record.Transaction == "" {
			return nil, fmt.Errorf("the payment is %s", record.State)
		}
		return &record, nil
	}
	return nil, errors.New("the payment is not in this database")
}

// settledOnChain returns an error unless the transaction used the authorization of the payment.
func settledOnChain(ctx context.Context, chain *x402.Chain, record *store.PaymentRecord) error {
	ctx, cancel := context.WithTimeout(ctx, lagTime)
	defer cancel()
	for {
		moved, err := chain.TransferBy(ctx, record.Asset, record.Payer, record.Nonce, record.Transaction)
		switch {
		case err == nil && moved != nil && moved.Amount == uint64(record.Amount): //nolint:gosec // positive
			return nil
		case err == nil:
			err = errors.New("it does not carry the payment")
		}
		if console.Sleep(ctx, time.Second) != nil {
			return fmt.Errorf("transaction %s: %w", record.Transaction, err)
		}
	}
}
