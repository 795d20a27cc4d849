package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// staleBlock is the age of the newest block above which an endpoint lags. Chains with USDC make a block in at most 15 seconds.
const staleBlock = time.Minute

// checkFacilitator asks the facilitator what it settles.
func (c *check) checkFacilitator(ctx context.Context, config server.Config) (found findings) {
	const what = "facilitator"
	client, err := c.Facilitator.Config(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil // told as a wrong setting
	}
	supported, err := client.Supported(ctx)
	if refused, ok := errors.AsType[*x402.StatusError](err); ok &&
		(refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		return found.fail(what, "it asks for another authentication: "+err.Error(), "correct --facilitator-key")
	}
	if err != nil {
		return found.fail(what, "it does not tell what it supports: "+err.Error(),
			"correct --facilitator-url, or let this machine through the firewall")
	}
	settles := func(scheme string) (does bool, text string) {
		does = slices.ContainsFunc(supported.Kinds, func(kind x402.SupportedKind) bool {
			return kind.X402Version == x402.Version && kind.Scheme == scheme && kind.Network == config.Network.ID
		})
		return does, map[bool]string{true: "it settles ", false: "it does not settle "}[does] + scheme + " on " + config.Network.ID
	}
	does, text := settles(x402.SchemeExact)
	found.require(does, what, text, "use a facilitator for this network, or correct --network")
	if c.Channels.AuthorizerKey.Value == "" {
		return found
	}
	if does, text = settles(x402.SchemeBatch); does {
		found.ok(what, text)
	} else {
		found.warn(what, text, "use a facilitator with batch-settlement; until then payment channels are not offered")
	}
	return found
}

// checkChain checks the endpoint of the blockchain, the token, and the payee.
func (c *check) checkChain(ctx context.Context, config server.Config) (found findings) {
	if !settings.IsHTTP(c.RPCURL.Value) || config.Network.ChainID == 0 {
		return nil // told as a wrong setting
	}
	chain := &x402.Chain{URL: c.RPCURL.Value}
	_, err := chain.Serving(ctx, config.Network.ID)
	if _, other := errors.AsType[*x402.OtherChain](err); other {
		// Its tokens and balances say nothing.
		return found.fail("endpoint", err.Error(), "use an endpoint of "+config.Network.ID+", or correct --network")
	}
	if err != nil {
		return found.fail("endpoint", "it does not respond: "+err.Error(), "correct --rpc-url, or let this machine through the firewall")
	}
	found.ok("endpoint", "it serves "+config.Network.ID)
	if _, at, err := chain.Newest(ctx); err != nil {
		found.fail("blocks", err.Error(), "use another endpoint")
	} else {
		found.newestBlock(time.Since(at))
	}
	found.token(ctx, chain, config.Network)
	if settings.AddressForm.MatchString(c.Payee) {
		found.payee(ctx, chain, config)
	}
	return found
}

// newestBlock adds a finding about the age of the newest block, by the clock of this machine.
func (f *findings) newestBlock(age time.Duration) {
	age = age.Round(time.Second)
	switch {
	case age > staleBlock:
		f.fail("blocks", fmt.Sprintf("the newest block is %s old", age),
			"use an endpoint that is up to date, or correct the clock of this machine")
	case age < -slowClock:
		f.warn("blocks", fmt.Sprintf("the newest block is %s in the future", -age), "correct the clock of this machine: run NTP")
	default:
		f.ok("blocks", fmt.Sprintf("the newest block is %s old", max(age, 0)))
	}
}

// token adds a finding about the contract of the token. Wrong names make all signatures invalid.
func (f *findings) token(ctx context.Context, chain *x402.Chain, network x402.Network) {
	const what = "token"
	code, err := chain.HasCode(ctx, network.Asset)
	name, version, untold := chain.TokenDomain(ctx, network.Asset)
	switch {
	case err != nil:
		f.fail(what, err.Error(), "use another endpoint")
	case !code:
		f.fail(what, network.Asset+" is not a contract on "+network.ID, "correct --network")
	case untold != nil:
		f.ok(what, network.Asset+" is a contract; it does not tell its EIP-712 name and version")
	case name != network.AssetName || version != network.AssetVersion:
		f.fail(what,
			fmt.Sprintf("its EIP-712 name and version are %q and %q, not %q and %q", name, version, network.AssetName, network.AssetVersion),
			"correct --network")
	default:
		f.ok(what, fmt.Sprintf("%s, version %s, at %s", name, version, network.Asset))
	}
}

// payee adds a finding about the address that receives payments.
func (f *findings) payee(ctx context.Context, chain *x402.Chain, config server.Config) {
	const what = "payee"
	balance, err := chain.Balance(ctx, config.Network.Asset, config.PayTo)
	code, codeErr := chain.HasCode(ctx, config.PayTo)
	switch {
	case strings.EqualFold(config.PayTo, config.Network.Asset):
		f.fail(what, "it is the contract of the token, and what it receives is lost", "use an address of your own as --payee")
	case err != nil:
		f.fail(what, "its balance cannot be read: "+err.Error(), "correct --network, or use another endpoint")
	case codeErr != nil:
		f.fail(what, codeErr.Error(), "use another endpoint")
	case code:
		f.warn(what, config.PayTo+" is a contract",
			"make sure that you can withdraw the token from it, such as from a smart wallet or a multisig")
	default:
		f.ok(what, fmt.Sprintf("%s has %s USD", config.PayTo, usd(int64(balance)))) //nolint:gosec // below the supply of the token
	}
}
