package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// sinceMargin is how much earlier than its payment a transfer can seem to be, because clocks differ.
const sinceMargin = 10 * time.Minute

// comparison is a report in progress, with the payments and transfers that are not matched yet.
type comparison struct {
	*Report
	database  *store.Store
	chain     *x402.Chain
	transfers map[parcel][]x402.Transfer        // transfers to the payee without a matching payment so far
	matched   map[uuid.UUID]bool                // settled payments whose transfer is found
	unmatched map[uuid.UUID]store.PaymentRecord // settled payments whose transfer is not found yet
	open      map[uuid.UUID]store.PaymentRecord // settling or unknown payments
}

// parcel identifies the transfer of a payment with a transaction. A facilitator may put several payments into one
// transaction, even several payments of the same amount by one payer.
type parcel struct {
	transaction, payer string
	amount             uint64
}

// Compare reads the chain up to its newest block and then the payments with these terms that were created before the
// comparison started. It checks each payment and transfer that has no match by transaction on its own. A non-zero since
// excludes earlier payments.
func Compare(ctx context.Context, database *store.Store, chain *x402.Chain, terms store.PaymentTerms, since time.Time) (*Report, error) {
	c := &comparison{
		Report:   &Report{Network: terms.Network, Asset: terms.Asset, Payee: terms.PayTo, Findings: []Finding{}},
		database: database, chain: chain,
		transfers: map[parcel][]x402.Transfer{}, matched: map[uuid.UUID]bool{},
		unmatched: map[uuid.UUID]store.PaymentRecord{}, open: map[uuid.UUID]store.PaymentRecord{},
	}
	return c.Report, c.compare(ctx, since)
}

func (c *comparison) compare(ctx context.Context, since time.Time) error {
	id, err := c.chain.Serving(ctx, c.Network)
	if err != nil {
		return err
	}
	begun := c.database.Now()
	done, err := c.database.ChannelTransactions(ctx, store.TransactionFilter{Network: c.Network, Asset: c.Asset, PayTo: c.Payee, Since: since})
	if err != nil {
		return err
	}
	first, err := c.first(ctx, since, begun, done)
	if err != nil {
		return err
	}
	if err := c.readChain(ctx, first.Add(-sinceMargin)); err != nil {
		return err
	}
	c.takePayouts(done)
	// Vouchers and deposits move no money to the payee; payouts of payment channels do.
	filter := store.PaymentFilter{Scheme: x402.SchemeExact, Network: c.Network, Asset: c.Asset, PayTo: c.Payee, Since: since, Until: begun}
	for record, err := range c.database.PaymentRecords(ctx, filter) {
		if err != nil {
			return err
		}
		c.match(record)
	}
	if err := c.explainTransfers(ctx); err != nil {
		return err
	}
	for _, record := range oldestFirst(c.unmatched) {
		c.checkUnmatched(ctx, record)
	}
	for _, record := range oldestFirst(c.open) {
		c.checkOpen(ctx, record)
	}
	c.Difference = c.Balance - c.Ledger
	return c.compareChannels(ctx, x402.NewBatchDomain(id), done, since)
}

// first returns the time from which on the chain is read: since, or that of the oldest payment or transaction in the ledger.
func (c *comparison) first(ctx context.Context, since, begun time.Time, done []store.PaymentChannelTransaction) (time.Time, error) {
	if !since.IsZero() {
		return since, nil
	}
	first := begun
	if len(done) > 0 {
		first = done[0].CreatedAt
	}
	for record, err := range c.database.PaymentRecords(ctx, store.PaymentFilter{Network: c.Network, Asset: c.Asset, PayTo: c.Payee}) {
		if err != nil {
			return time.Time{}, err
		}
		if record.CreatedAt.Before(first) {
			first = record.CreatedAt
		}
		break
	}
	if first.Equal(begun) {
		return time.Time{}, errors.New("the ledger has no payments: give the time from which on the chain is read (--since)")
	}
	return first, nil
}

func oldestFirst(records map[uuid.UUID]store.PaymentRecord) []store.PaymentRecord {
	return slices.SortedFunc(maps.Values(records), func(a, b store.PaymentRecord) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID.String(), b.ID.String()))
	})
}

// readChain reads the payee's balance, and the transfers to and from the payee after since.
func (c *comparison) readChain(ctx context.Context, since time.Time) error {
	var err error
	if c.Block, c.At, err = c.chain.Newest(ctx); err != nil {
		return err
	}
	// Read the balance first, because most endpoints keep old balances for a few minutes only.
	balance, err := c.chain.BalanceAt(ctx, c.Asset, c.Payee, c.Block)
	if err != nil {
		return err
	}
	start, err := c.chain.BlockAt(ctx, since)
	if err != nil {
		return err
	}
	c.FromBlock = start + 1
	before, unknown := c.chain.BalanceAt(ctx, c.Asset, c.Payee, start)
	refunds, err := c.database.Refunds(ctx, store.PaymentTerms{Network: c.Network, Asset: c.Asset, PayTo: c.Payee})
	if err != nil {
		return err
	}
	refunded := map[parcel]bool{}
	for _, refund := range refunds {
		refunded[parcel{refund.Transaction, refund.Payer, uint64(refund.Amount)}] = true
	}
	var in, out uint64
	for transfer, err := range c.chain.Transfers(ctx, c.Asset, c.Payee, c.FromBlock, c.Block) {
		if err != nil {
			return err
		}
		in += transfer.Amount
		key := parcel{transfer.Transaction, transfer.From, transfer.Amount}
		c.transfers[key] = append(c.transfers[key], transfer)
	}
	for transfer, err := range c.chain.Payouts(ctx, c.Asset, c.Payee, c.FromBlock, c.Block) {
		if err != nil {
			return err
		}
		out += transfer.Amount
		if key := (parcel{transfer.Transaction, transfer.To, transfer.Amount}); refunded[key] {
			delete(refunded, key) // a transaction can have several equal transfers
			c.Refunded += atomic(transfer.Amount)
		}
	}
	c.Balance, c.Left = atomic(balance), atomic(out)-c.Refunded
	c.Before, c.BeforeKnown = c.Balance-atomic(in)+atomic(out), unknown == nil
	if c.BeforeKnown && c.Before != atomic(before) || c.Before < 0 {
		c.add(contradiction, Finding{Payer: c.Payee, Amount: c.Before, Text: fmt.Sprintf(
			"the endpoint contradicts itself: this earlier balance follows from its current balance and the transfers of blocks %d to %d",
			c.FromBlock, c.Block)})
	}
	return nil
}

// atomic converts an amount to the ledger's type. It does not overflow, because the token's supply is below 2^63 units.
func atomic(amount uint64) int64 { return int64(amount) }

// match finds the transfer of a payment by its transaction.
func (c *comparison) match(record store.PaymentRecord) {
	switch record.State {
	case store.PaymentDelivered, store.PaymentUndeliverable:
		c.Ledger += record.Amount
		c.Payments++
		key := parcel{strings.ToLower(record.Transaction), record.Payer, uint64(record.Amount)}
		if transfers := c.transfers[key]; len(transfers) > 0 {
			c.matched[record.ID] = true
			c.transfers[key] = transfers[1:]
		} else {
			c.unmatched[record.ID] = record
		}
	case store.PaymentSettling, store.PaymentUnknown:
		c.open[record.ID] = record
	}
}

// explainTransfers checks each transaction with transfers that match no payment.
func (c *comparison) explainTransfers(ctx context.Context) error {
	left := map[string][]x402.Transfer{}
	var order []x402.Transfer // one transfer of each transaction
	for key, transfers := range c.transfers {
		if len(transfers) > 0 && left[key.transaction] == nil {
			order = append(order, transfers[0])
		}
		left[key.transaction] = append(left[key.transaction], transfers...)
	}
	slices.SortFunc(order, func(a, b x402.Transfer) int {
		return cmp.Or(cmp.Compare(a.Block, b.Block), cmp.Compare(a.Transaction, b.Transaction))
	})
	for _, one := range order {
		if err := c.explain(ctx, one.Transaction, left[one.Transaction]); err != nil {
			return err
		}
	}
	return nil
}

// explain assigns the remaining transfers of one transaction to payments by the nonces of its authorizations. match
// does not distinguish equal transfers by one payer, so any of these payments may still be unmatched.
func (c *comparison) explain(ctx context.Context, transaction string, left []x402.Transfer) error {
	used, err := c.chain.AuthorizationsIn(ctx, c.Asset, transaction)
	if err != nil {
		return err
	}
	for _, one := range used {
		at := slices.IndexFunc(left, func(t x402.Transfer) bool {
			return t.From == one.Transfer.From && t.To == one.Transfer.To && t.Amount == one.Transfer.Amount
		})
		if at < 0 {
			continue
		}
		record, err := c.paymentOf(ctx, one)
		if err != nil {
			return err
		}
		if record != nil && c.matched[record.ID] {
			continue
		}
		transfer := left[at] // that of the receipt has no block
		left = slices.Delete(left, at, at+1)
		if record == nil {
			c.lose(one, transfer)
		} else {
			c.settle(record, one.Nonce, transfer)
		}
	}
	for _, transfer := range left {
		c.Other += atomic(transfer.Amount)
		c.add(notice, Finding{Payer: transfer.From, Amount: atomic(transfer.Amount), Transaction: transaction,
			Text: "incoming transfer without an authorization: it is not a payment"})
	}
	return nil
}

// paymentOf returns the payment that was made with an authorization, or nil.
func (c *comparison) paymentOf(ctx context.Context, used x402.UsedAuthorization) (*store.PaymentRecord, error) {
	row, err := c.database.Payment(ctx, c.Network, c.Asset, used.Authorizer, used.Nonce)
	if err != nil || row == nil {
		return nil, err
	}
	return &row.PaymentRecord, nil
}

// settle updates the report with a transfer whose payment was found by its authorization.
func (c *comparison) settle(record *store.PaymentRecord, nonce string, transfer x402.Transfer) {
	amount := atomic(transfer.Amount)
	if record.Amount != amount {
		c.addPayment(contradiction, *record, transfer.Transaction, "settled with another amount: "+x402.FormatUSD(transfer.Amount))
	}
	if unmatched, ok := c.unmatched[record.ID]; ok {
		delete(c.unmatched, record.ID)
		if unmatched.Transaction != "" { // no transaction: an earlier attempt settled it and the response was lost
			c.addPayment(contradiction, unmatched, transfer.Transaction, "settled in this transaction, but the ledger has "+unmatched.Transaction)
		}
		return
	}
	if open, ok := c.open[record.ID]; ok {
		delete(c.open, record.ID)
		c.Open += amount
		c.addPayment(notice, open, transfer.Transaction, "settled on the chain, not yet delivered")
		return
	}
	if record.State == store.PaymentFailed {
		c.Unpaid += amount
		c.addPayment(contradiction, *record, transfer.Transaction, "is recorded as failed, but it settled")
		c.LostPayments = append(c.LostPayments, LostPayment{record.ID.String(), record.Payer, nonce, amount, transfer.Transaction,
			transfer.Block})
		return
	}
	c.Beyond += amount
}
