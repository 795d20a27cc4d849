package operator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// onChain are the settings of commands that act for the payment channels of the ledger.
type onChain struct {
	Ledger        ledger          `embed:""`
	Terms         terms           `embed:""`
	Facilitator   Facilitator     `embed:"" prefix:"facilitator-" envprefix:"PARLEY_FACILITATOR_"`
	RPCURL        settings.Secret `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" help:"A JSON-RPC endpoint of the chain."`
	AuthorizerKey settings.Secret `env:"PARLEY_AUTHORIZER_KEY" placeholder:"KEY"`
}

// with opens the payment channels of the ledger for a function.
func (o onChain) with(ctx context.Context, to console.Console, act func(*channel.Scheme) error) error {
	var wrong settings.Wrong
	log := NewLog(to.Err, slog.LevelInfo)
	client, err := o.Facilitator.Config(log)
	wrong.Add(err)
	wrong.RPCURL(o.RPCURL)
	wrong.Check(o.AuthorizerKey.Value != "", "authorizer-key", "", "the keys that sign claims, the same as those of the server")
	if wrong != nil {
		return console.Usage(wrong)
	}
	current, former, err := authorizerKeys(o.AuthorizerKey, o.Terms.Payee)
	if err != nil {
		return console.Usage(err)
	}
	return o.Ledger.with(ctx, func(database *store.Store) error {
		chosen, err := o.Terms.choose(ctx, database)
		if err != nil {
			return err
		}
		network, err := networkOf(chosen)
		if err != nil {
			return err
		}
		config := payment.Config{PayTo: chosen.PayTo, Network: network}
		engine := payment.New(config, database, client, &x402.Chain{URL: o.RPCURL.Value}, log)
		channels, err := channel.New(engine, channel.Config{Authorizer: current, FormerAuthorizers: former, WithdrawDelay: 24 * time.Hour})
		if err != nil {
			return err
		}
		return act(channels)
	})
}

// networkOf returns the network of payments in the ledger. Name and version of a custom token are not known; only deposits need them.
func networkOf(terms store.PaymentTerms) (x402.Network, error) {
	network, known := x402.LookupNetwork(terms.Network)
	if !known {
		chain, err := x402.ParseChainID(terms.Network)
		if err != nil {
			return x402.Network{}, err
		}
		network = x402.Network{ID: terms.Network, ChainID: chain, AssetName: "token", AssetVersion: "1"}
	}
	network.Asset = terms.Asset
	return network, nil
}

type paymentsClaim struct {
	Chain   onChain `embed:""`
	All     bool    `xor:"which" required:"" help:"Claim from all payment channels."`
	Channel string  `xor:"which" required:"" placeholder:"0x…" help:"Claim from this payment channel."`
}

func (p *paymentsClaim) Run(ctx context.Context, to console.Console) (err error) {
	id := ""
	if !p.All {
		if id, err = channelID(p.Channel); err != nil {
			return err
		}
	}
	return p.Chain.with(ctx, to, func(channels *channel.Scheme) error {
		claimed, unclaimed, err := channels.ClaimNow(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(to.Out, "claimed from %d of %d payment channels with unclaimed vouchers\n", claimed, unclaimed)
		if claimed > 0 {
			if err := payOut(ctx, to, channels); err != nil {
				return err
			}
		}
		if int64(claimed) < unclaimed {
			return fmt.Errorf("%d payment channels are not claimed; the log above says why", unclaimed-int64(claimed))
		}
		return nil
	})
}

type paymentsSettle struct {
	Chain onChain `embed:""`
}

func (p *paymentsSettle) Run(ctx context.Context, to console.Console) error {
	return p.Chain.with(ctx, to, func(channels *channel.Scheme) error { return payOut(ctx, to, channels) })
}

func payOut(ctx context.Context, to console.Console, channels *channel.Scheme) error {
	settled, err := channels.PayOutNow(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("pay out: %w", err)
	case settled == nil:
		fmt.Fprintln(to.Out, "nothing is claimed that is not paid out")
	default:
		fmt.Fprintf(to.Out, "paid out %s atomic units in %s\n", settled.Amount, settled.Transaction)
	}
	return nil
}
