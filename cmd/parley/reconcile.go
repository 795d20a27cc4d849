package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// paymentsReconcile compares the ledger with the chain, both ways: what the ledger calls paid must have come, and what
// came should stand in the ledger.
type paymentsReconcile struct {
	Ledger  ledger `embed:""`
	RPCURL  string `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" help:"A JSON-RPC endpoint of the chain."`
	Payee   string `env:"PARLEY_PAYEE" placeholder:"0x…" help:"The address that is paid; by default the one in the ledger, if it is one."`
	Network string `env:"PARLEY_NETWORK" placeholder:"eip155:N" help:"The chain, as CAIP-2; by default the ledger's."`
	Asset   string `env:"PARLEY_ASSET" placeholder:"0x…" help:"The token contract; by default the ledger's."`
	Since   moment `placeholder:"TIME" help:"Compare only payments begun at this time or later: a long time takes many calls of the endpoint."`
	JSON    bool   `name:"json" help:"One JSON object instead of tables."`
}

// sinceMargin is how much earlier than its payment a transfer may seem to be: clocks differ.
const sinceMargin = 10 * time.Minute

// The weights of a finding.
const (
	contradiction = "contradiction" // ledger and chain cannot both be right
	unchecked     = "unchecked"     // the endpoint does not say
	notice        = "notice"        // worth knowing, and in order
)

// finding is one thing that an operator should see. Payment is empty for money that no payment explains.
type finding struct {
	Weight      string `json:"weight"`
	Payment     string `json:"payment,omitempty"`
	State       string `json:"state,omitempty"`
	Payer       string `json:"payer"`
	Amount      int64  `json:"amount"`
	AmountUSD   string `json:"amount_usd"`
	Transaction string `json:"transaction,omitempty"`
	Text        string `json:"text"`
}

// comparison is what came out. Amounts are in atomic units. Balance - Ledger = Before + Other + Open + Unpaid + Beyond -
// Left - Missing, as far as the endpoint tells the balance before; otherwise Before is what makes this true.
type comparison struct {
	Network   string    `json:"network"`
	Asset     string    `json:"asset"`
	Payee     string    `json:"payee"`
	FromBlock uint64    `json:"from_block"` // the first one that was read
	Block     uint64    `json:"block"`      // the last one
	At        time.Time `json:"at"`

	Balance    int64 `json:"balance"`
	Ledger     int64 `json:"ledger"` // delivered and undeliverable
	Payments   int64 `json:"payments"`
	Difference int64 `json:"difference"`

	Before      int64 `json:"before"`
	BeforeKnown bool  `json:"before_known"`
	Other       int64 `json:"other"`   // came, and no payment explains it
	Open        int64 `json:"open"`    // came for payments that are still open
	Unpaid      int64 `json:"unpaid"`  // came for payments that count as failed
	Beyond      int64 `json:"beyond"`  // came for payments begun before or after the compared ones
	Left        int64 `json:"left"`    // went out
	Missing     int64 `json:"missing"` // of payments in Ledger, not come by the last block

	Findings       []finding `json:"findings"`
	Contradictions int       `json:"contradictions"`
	Unchecked      int       `json:"unchecked"`

	database     *store.Store
	chain        *x402.Chain
	since, until time.Time                         // of the compared payments
	came         map[parcel][]x402.Transfer        // and is not explained yet
	matched      map[uuid.UUID]bool                // settled, and its transfer has come
	unmatched    map[uuid.UUID]store.PaymentRecord // settled, and its transfer is not found yet
	open         map[uuid.UUID]store.PaymentRecord // settling or unknown
}

// parcel is what a payment with a transaction is recognised by. A facilitator may put several payments into one
// transaction, even equal ones by one payer.
type parcel struct {
	transaction, payer string
	amount             uint64
}

func (p *paymentsReconcile) Run(ctx context.Context, to console) error {
	if !isHTTP(p.RPCURL) {
		return errors.New("cannot reconcile without --rpc-url (PARLEY_RPC_URL), an http(s) JSON-RPC endpoint of the chain")
	}
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	terms, err := p.terms(ctx, database)
	if err != nil {
		return err
	}
	c := &comparison{
		Network: terms.Network, Asset: terms.Asset, Payee: terms.PayTo, Findings: []finding{},
		database: database, chain: &x402.Chain{URL: p.RPCURL}, since: p.Since.Time,
		came: map[parcel][]x402.Transfer{}, matched: map[uuid.UUID]bool{},
		unmatched: map[uuid.UUID]store.PaymentRecord{}, open: map[uuid.UUID]store.PaymentRecord{},
	}
	if err := c.compare(ctx); err != nil {
		return err
	}
	if p.JSON {
		err = json.NewEncoder(to.out).Encode(c)
	} else {
		err = c.print(to.out)
	}
	if err == nil && c.Contradictions+c.Unchecked > 0 {
		err = fmt.Errorf("%d contradictions between ledger and chain, %d payments that the endpoint cannot tell", c.Contradictions, c.Unchecked)
	}
	return err
}

// terms are what the operator says, completed by the ledger's if it leaves no choice.
func (p *paymentsReconcile) terms(ctx context.Context, database *store.Store) (store.PaymentTerms, error) {
	all, err := database.PaymentTerms(ctx)
	if err != nil {
		return store.PaymentTerms{}, err
	}
	fits := func(given, has string) bool { return given == "" || strings.EqualFold(given, has) }
	fitting := slices.DeleteFunc(all, func(t store.PaymentTerms) bool {
		return !fits(p.Network, t.Network) || !fits(p.Asset, t.Asset) || !fits(p.Payee, t.PayTo)
	})
	switch len(fitting) {
	case 0:
		return store.PaymentTerms{}, errors.New("the ledger has no payments of this network, asset and payee")
	case 1:
		return fitting[0], nil
	}
	var choice []string
	for _, t := range fitting {
		choice = append(choice, fmt.Sprintf("--network %s --asset %s --payee %s", t.Network, t.Asset, t.PayTo))
	}
	return store.PaymentTerms{}, errors.New("the ledger has payments of several terms; say which: " + strings.Join(choice, ", or "))
}

// compare reads the chain up to its newest block, then the payments begun before that, and looks one by one at what does
// not fit at once.
func (c *comparison) compare(ctx context.Context) error {
	id, err := c.chain.ChainID(ctx)
	if err != nil {
		return err
	}
	if want, err := x402.ParseChainID(c.Network); err != nil || id != want {
		return fmt.Errorf("the endpoint serves chain %d, but the payments are on %s", id, c.Network)
	}
	c.until = time.Now()
	filter := store.PaymentFilter{Network: c.Network, Asset: c.Asset, PayTo: c.Payee, Since: c.since, Until: c.until}
	first := c.until
	for record, err := range c.database.PaymentRecords(ctx, filter) {
		if err != nil {
			return err
		}
		first = record.CreatedAt
		break
	}
	if err := c.readChain(ctx, first.Add(-sinceMargin)); err != nil {
		return err
	}
	for record, err := range c.database.PaymentRecords(ctx, filter) {
		if err != nil {
			return err
		}
		c.match(record)
	}
	if err := c.explainTransfers(ctx); err != nil {
		return err
	}
	for _, record := range byAge(c.unmatched) {
		c.lookForTransfer(ctx, record)
	}
	for _, record := range byAge(c.open) {
		c.lookAtOpen(ctx, record)
	}
	c.Difference = c.Balance - c.Ledger
	return ctx.Err()
}

func byAge(records map[uuid.UUID]store.PaymentRecord) []store.PaymentRecord {
	return slices.SortedFunc(maps.Values(records), func(a, b store.PaymentRecord) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID.String(), b.ID.String()))
	})
}

// readChain reads the balance and all that came and left after since.
func (c *comparison) readChain(ctx context.Context, since time.Time) error {
	var err error
	if c.Block, c.At, err = c.chain.Newest(ctx); err != nil {
		return err
	}
	// At once, and not at the end: most endpoints know old balances for minutes only.
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
	var in, out uint64
	for transfer, err := range c.chain.Transfers(ctx, c.Asset, c.Payee, c.FromBlock, c.Block) {
		if err != nil {
			return err
		}
		in += transfer.Amount
		key := parcel{transfer.Transaction, transfer.From, transfer.Amount}
		c.came[key] = append(c.came[key], transfer)
	}
	for transfer, err := range c.chain.Payouts(ctx, c.Asset, c.Payee, c.FromBlock, c.Block) {
		if err != nil {
			return err
		}
		out += transfer.Amount
	}
	c.Balance, c.Left = atomic(balance), atomic(out)
	c.Before, c.BeforeKnown = c.Balance-atomic(in)+c.Left, unknown == nil
	if c.BeforeKnown && c.Before != atomic(before) || c.Before < 0 {
		c.find(contradiction, finding{Payer: c.Payee, Amount: c.Before, Text: fmt.Sprintf(
			"the endpoint contradicts itself: the balance and the transfers of blocks %d to %d leave this for the time before", c.FromBlock, c.Block)})
	}
	return nil
}

// atomic is an amount as the ledger has it: there is less money than would overflow it.
func atomic(amount uint64) int64 { return int64(amount) }

// match takes a payment's transfer away, if its transaction leads to it.
func (c *comparison) match(record store.PaymentRecord) {
	switch record.State {
	case store.PaymentDelivered, store.PaymentUndeliverable:
		c.Ledger += record.Amount
		c.Payments++
		key := parcel{strings.ToLower(record.Transaction), record.Payer, uint64(record.Amount)}
		if transfers := c.came[key]; len(transfers) > 0 {
			c.matched[record.ID] = true
			c.came[key] = transfers[1:]
		} else {
			c.unmatched[record.ID] = record
		}
	case store.PaymentSettling, store.PaymentUnknown:
		c.open[record.ID] = record
	}
}

// explainTransfers looks at each transaction of which something is left over.
func (c *comparison) explainTransfers(ctx context.Context) error {
	left := map[string][]x402.Transfer{}
	var order []x402.Transfer // one of each transaction
	for key, transfers := range c.came {
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

// explain finds the payments of what is left of one transaction by the nonces of the authorizations that it used. Equal
// transfers by one payer have not been told apart so far, so any of its payments may be the one that is not matched yet.
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
		if record != nil && !c.matched[record.ID] {
			left = slices.Delete(left, at, at+1)
			c.settle(record, one.Transfer)
		}
	}
	for _, transfer := range left {
		c.Other += atomic(transfer.Amount)
		c.find(notice, finding{Payer: transfer.From, Amount: atomic(transfer.Amount), Transaction: transaction,
			Text: "came otherwise: no payment in the ledger explains it"})
	}
	return nil
}

// paymentOf returns the payment that was made with an authorization, or nil.
func (c *comparison) paymentOf(ctx context.Context, used x402.UsedAuthorization) (*store.PaymentRecord, error) {
	filter := store.PaymentFilter{Network: c.Network, Asset: c.Asset, Payer: used.Authorizer, Nonce: used.Nonce}
	for record, err := range c.database.PaymentRecords(ctx, filter) {
		return &record, err
	}
	return nil, nil
}

// settle takes note of a transfer that was found by its authorization.
func (c *comparison) settle(record *store.PaymentRecord, transfer x402.Transfer) {
	amount := atomic(transfer.Amount)
	if record.Amount != amount {
		c.findOf(contradiction, *record, transfer.Transaction, "came with another amount: "+usd(amount))
	}
	if unmatched, ok := c.unmatched[record.ID]; ok {
		delete(c.unmatched, record.ID)
		if unmatched.Transaction != "" { // without one an earlier attempt had settled it, and its answer was lost
			c.findOf(contradiction, unmatched, transfer.Transaction, "came in this transaction, but the ledger names "+unmatched.Transaction)
		}
		return
	}
	if open, ok := c.open[record.ID]; ok {
		delete(c.open, record.ID)
		c.Open += amount
		c.findOf(notice, open, transfer.Transaction, "settled on the chain, and to be delivered")
		return
	}
	if record.State == store.PaymentFailed {
		c.Unpaid += amount
		c.findOf(contradiction, *record, transfer.Transaction, "counts as not paid, but the money came")
		return
	}
	c.Beyond += amount
}

// lookForTransfer asks the chain about a payment that the ledger calls paid, and whose transfer has not come by the last
// block.
func (c *comparison) lookForTransfer(ctx context.Context, record store.PaymentRecord) {
	c.Missing += record.Amount
	state, err := c.chain.Authorization(ctx, record.Asset, record.Payer, record.Nonce, record.CreatedAt)
	switch {
	case err != nil:
		c.findOf(unchecked, record, "", err.Error())
	case state.Used && state.To == record.PayTo && atomic(state.Amount) == record.Amount:
		if record.Transaction != "" && !strings.EqualFold(record.Transaction, state.Transaction) {
			c.findOf(contradiction, record, state.Transaction, "came in this transaction, but the ledger names "+record.Transaction)
			return
		}
		c.findOf(notice, record, state.Transaction, fmt.Sprintf("came after block %d", c.Block))
	case state.Used:
		c.findOf(contradiction, record, state.Transaction, fmt.Sprintf("its authorization has paid %s to %s instead", usd(atomic(state.Amount)), state.To))
	case state.Cancelled:
		c.findOf(contradiction, record, state.Transaction, "counts as paid, but its authorization was cancelled")
	case state.ChainTime.Before(record.UpdatedAt):
		c.findOf(notice, record, "", "was settled after the newest block that the endpoint has, that of "+timestamp(state.ChainTime))
	default:
		c.findOf(contradiction, record, "", "counts as paid, but its authorization is unused")
	}
}

// lookAtOpen tells what the chain says of a payment whose story has not ended.
func (c *comparison) lookAtOpen(ctx context.Context, record store.PaymentRecord) {
	state, err := c.chain.Authorization(ctx, record.Asset, record.Payer, record.Nonce, record.CreatedAt)
	weight := notice
	var told string
	switch {
	case err != nil:
		weight, told = unchecked, err.Error()
	case state.Used && state.To == record.PayTo && atomic(state.Amount) == record.Amount:
		told = "settled on the chain, and to be delivered"
	case state.Used:
		told = fmt.Sprintf("can never be settled: its authorization has paid %s to %s", usd(atomic(state.Amount)), state.To)
	case state.Cancelled:
		told = "can never be settled: its authorization was cancelled"
	case state.ChainTime.After(record.ValidBefore):
		told = "can never be settled: its authorization was not used in time"
	default:
		told = "not settled; that is possible until " + timestamp(record.ValidBefore)
	}
	c.findOf(weight, record, state.Transaction, told)
}

func (c *comparison) findOf(weight string, record store.PaymentRecord, transaction, told string) {
	c.find(weight, finding{Payment: record.ID.String(), State: record.State, Payer: record.Payer, Amount: record.Amount, Transaction: transaction, Text: told})
}

func (c *comparison) find(weight string, found finding) {
	found.Weight, found.AmountUSD = weight, usd(found.Amount)
	switch weight {
	case contradiction:
		c.Contradictions++
	case unchecked:
		c.Unchecked++
	}
	c.Findings = append(c.Findings, found)
}

func (c *comparison) print(to io.Writer) error {
	out := table(to)
	fmt.Fprintf(out, "network\t%s\nasset\t%s\npayee\t%s\n", c.Network, c.Asset, c.Payee)
	fmt.Fprintf(out, "blocks\t%d to %d, of %s\n\n", c.FromBlock, c.Block, timestamp(c.At))
	fmt.Fprintf(out, "balance on the chain\t%s USD\n", usd(c.Balance))
	fmt.Fprintf(out, "delivered and undeliverable\t%s USD in %d payments\n", usd(c.Ledger), c.Payments)
	fmt.Fprintf(out, "difference\t%s USD\n", usd(c.Difference))
	before := fmt.Sprintf("there before block %d", c.FromBlock)
	if !c.BeforeKnown {
		before += " (calculated: the endpoint does not know it any more)"
	}
	for _, part := range []struct {
		name   string
		amount int64
	}{
		{before, c.Before}, {"came otherwise", c.Other}, {"came for payments that are open", c.Open},
		{"came for payments that failed", c.Unpaid}, {"came for payments begun earlier or later", c.Beyond},
		{"went out", -c.Left}, {fmt.Sprintf("has not come by block %d", c.Block), -c.Missing},
	} {
		if part.amount != 0 {
			fmt.Fprintf(out, "  %s\t%s USD\n", part.name, usd(part.amount))
		}
	}
	if len(c.Findings) == 0 {
		fmt.Fprintln(out, "\nnothing to report")
		return out.Flush()
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nFINDING\tPAYMENT\tSTATE\tPAYER\tUSD\tWHAT\tTRANSACTION")
	for _, found := range c.Findings {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			found.Weight, found.Payment, found.State, found.Payer, found.AmountUSD, printable(found.Text), found.Transaction)
	}
	return out.Flush()
}
