package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

type paymentsChannels struct {
	Ledger      ledger   `embed:""`
	State       []string `enum:"open,depositing,refunding" placeholder:"STATE"`
	Payer       string   `placeholder:"0x…" help:"The payer's address."`
	Unclaimed   bool     `help:"Only those with vouchers that are not claimed."`
	Withdrawing bool     `help:"Only those whose payer withdraws."`
	Since       moment   `placeholder:"TIME" help:"Used at this time or later: 2026-11-01 (UTC) or 2026-11-01T08:30:00Z."`
	Until       moment   `placeholder:"TIME" help:"Used last before this time."`
	Limit       int      `default:"50" help:"Maximum number; 0 for all (${default})."`
	Format      string   `enum:"table,csv,json" default:"table"`
}

// channelColumns are the displayed values of a payment channel, in this order. The voucher is not among them: it is worth money to
// the payee.
var channelColumns = []columnOf[store.PaymentChannel]{
	{"id", func(c store.PaymentChannel) any { return c.ID }},
	{"payer", func(c store.PaymentChannel) any { return c.Payer }},
	{"payer_authorizer", func(c store.PaymentChannel) any { return c.PayerAuthorizer }},
	{"network", func(c store.PaymentChannel) any { return c.Network }},
	{"asset", func(c store.PaymentChannel) any { return c.Asset }},
	{"pay_to", func(c store.PaymentChannel) any { return c.PayTo }},
	{"receiver_authorizer", func(c store.PaymentChannel) any { return c.ReceiverAuthorizer }},
	{"withdraw_delay_s", func(c store.PaymentChannel) any { return c.WithdrawDelay }},
	{"salt", func(c store.PaymentChannel) any { return c.Salt }},
	{"state", func(c store.PaymentChannel) any { return c.State }},
	{"balance", func(c store.PaymentChannel) any { return c.Balance }},
	{"charged", func(c store.PaymentChannel) any { return c.Charged }},
	{"claimed", func(c store.PaymentChannel) any { return c.Claimed }},
	{"unclaimed", func(c store.PaymentChannel) any { return c.Charged - c.Claimed }},
	{"unclaimed_usd", func(c store.PaymentChannel) any { return usd(c.Charged - c.Claimed) }},
	{"unclaimed_since", func(c store.PaymentChannel) any { return ifSet(c.UnclaimedSince, timestamp) }},
	{"claim_after", func(c store.PaymentChannel) any { return ifSet(c.ClaimAfter, timestamp) }},
	{"withdraw_requested_at", func(c store.PaymentChannel) any {
		if c.WithdrawRequestedAt == 0 {
			return nil
		}
		return timestamp(time.Unix(c.WithdrawRequestedAt, 0))
	}},
	{"refund_nonce", func(c store.PaymentChannel) any { return c.RefundNonce }},
	{"refund_amount", func(c store.PaymentChannel) any { return c.RefundAmount }},
	{"synced_at", func(c store.PaymentChannel) any { return timestamp(c.SyncedAt) }},
	{"used_at", func(c store.PaymentChannel) any { return timestamp(c.UsedAt) }},
	{"created_at", func(c store.PaymentChannel) any { return timestamp(c.CreatedAt) }},
}

func (p *paymentsChannels) Run(ctx context.Context, to console.Console) error {
	return p.Ledger.with(ctx, func(database *store.Store) error {
		filter := store.ChannelFilter{States: p.State, Payer: strings.ToLower(p.Payer), Unclaimed: p.Unclaimed, Withdrawing: p.Withdrawing,
			Since: p.Since.Time, Until: p.Until.Time}
		inTable := []string{"used_at", "state", "withdraw_requested_at", "payer", "unclaimed_usd", "id"}
		return list(to.Out, p.Format, p.Limit, channelColumns, inTable, database.PaymentChannels(ctx, filter))
	})
}

type paymentsChannel struct {
	Ledger ledger `embed:""`
	ID     string `arg:"" help:"The payment channel's id."`
}

func (p *paymentsChannel) Run(ctx context.Context, to console.Console) error {
	id, err := channelID(p.ID)
	if err != nil {
		return err
	}
	return p.Ledger.with(ctx, func(database *store.Store) error { return showChannel(ctx, to, database, id) })
}

// showChannel prints a payment channel, its payments and its transactions.
func showChannel(ctx context.Context, to console.Console, database *store.Store, id string) error {
	found := false
	for channel, err := range database.PaymentChannels(ctx, store.ChannelFilter{ID: id}) {
		if err != nil {
			return err
		}
		found = true
		if err := show(to.Out, false, channelColumns, channel); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("the ledger has no payment channel %s", id)
	}
	out := console.Table(to.Out)
	fmt.Fprintln(out, "\nCREATED\tPAYMENT\tSTATE\tOPERATION\tUSD\tDEPOSIT\tTRANSACTION")
	for record, err := range database.PaymentRecords(ctx, store.PaymentFilter{Channel: id}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", timestamp(record.CreatedAt), record.ID, record.State, record.Operation,
			usd(record.Amount), usd(record.DepositAmount), record.Transaction)
	}
	done, err := database.ChannelTransactions(ctx, store.TransactionFilter{Channel: id})
	if err != nil {
		return err
	}
	for _, one := range done { // the amount of a claim is the sum of its payment channels
		fmt.Fprintf(out, "%s\t%s, payment channels: %d\t\t\t%s\t\t%s\n",
			timestamp(one.CreatedAt), one.Kind, len(one.PaymentChannelIDs), usd(one.Claimed+one.Paid), one.Transaction)
	}
	return out.Flush()
}

// channelID checks the id of a payment channel and returns it in lower case.
func channelID(id string) (string, error) {
	if !transactionHash.MatchString(id) { // the same form
		return "", errors.New("a payment channel's id is 0x and 64 hex digits")
	}
	return strings.ToLower(id), nil
}
