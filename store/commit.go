package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Work is what a call does in the database: one of its two functions, which may run several times. The changes of a dry run are lost.
type Work struct {
	// Batched loads with the caller's right and returns the response. Such a call shares its commit with others if it can.
	Batched func(ctx context.Context, read *Reader, do Actions) (Response, error)
	// Transacted runs in a transaction of its own.
	Transacted func(ctx context.Context, tx *Tx) (Response, error)
	// Turn, if not nil, waits before the work has a transaction of its own. The store ends the turn after the transaction.
	Turn func(ctx context.Context) (end func(), err error)
}

// Response is what a call returns. The zero value is no response.
type Response struct {
	Body []byte // JSON
	// Record is what the ledger stores in place of the body; nil for the body itself. A page of messages is stored as which messages it had.
	Record []byte
}

// Stored is what the ledger stores.
func (r Response) Stored() []byte {
	if r.Record != nil {
		return r.Record
	}
	return r.Body
}

// Actions are what a call that shares its commit can do beside reading. It does at most one thing that changes something, at its end.
type Actions interface {
	// Messages returns page (from 1) of n messages of the conversation, newest first: see [Reader.Messages].
	Messages(ctx context.Context, view *ConversationView, n, page int64, before *uuid.UUID, most int64) (*MessagePage, error)
	// MarkRead marks messages as read: see [Tx.MarkRead].
	MarkRead(ctx context.Context, agent uuid.UUID, read ReadRange) error
	// MarkFirstRead is MarkRead in a quiet conversation: see [Tx.MarkFirstRead].
	MarkFirstRead(ctx context.Context, agent uuid.UUID, read ReadRange) error
	// ReadUnread returns unread messages and marks them as read: see [Tx.ReadUnread].
	ReadUnread(ctx context.Context, agent uuid.UUID, page UnreadPage) (*Unread, error)
	// ReadThrough confirms a page and returns what follows: see [Tx.ReadThrough].
	ReadThrough(ctx context.Context, agent uuid.UUID, through Through, page UnreadPage) (*Unread, error)
	// SendMessage sends a message: see [Tx.SendMessage].
	SendMessage(ctx context.Context, message OutgoingMessage) (*Sent, error)
}

var (
	_ Actions = (*Tx)(nil)
	_ Actions = (*batchedActions)(nil)
	_ Actions = dryActions{}
)

// Done is work that is done: it has the response and changes nothing.
func Done(response Response) Work {
	return Work{Batched: func(context.Context, *Reader, Actions) (Response, error) { return response, nil }}
}

// in runs the work in a transaction.
func (w Work) in(ctx context.Context, tx *Tx) (Response, error) {
	if w.Transacted != nil {
		return w.Transacted(ctx, tx)
	}
	return w.Batched(ctx, &tx.Reader, tx)
}

// inTurn runs the transaction of the work when its turn has come.
func (w Work) inTurn(ctx context.Context, transaction func() error) error {
	if w.Turn != nil {
		end, err := w.Turn(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	return transaction()
}

// Closing is how the payment of a call ends, in the transaction of the effect: it is delivered, or a voucher is charged and recorded as
// delivered.
type Closing struct {
	Delivery *Delivery
	Deposit  *DepositCharge // only with Delivery: the payment deposited into a payment channel, and brought its voucher
	Charge   *VoucherCharge
	// Encode returns the response as the ledger stores it; nil if it stores none.
	Encode func(response Response) ([]byte, error)

	page *readPage // only in the group commit
}

// DryRun runs work without effect and returns the error that Commit would return at this moment.
func (s *Store) DryRun(ctx context.Context, work Work) (err error) {
	if work.Transacted == nil {
		_, err = work.Batched(ctx, &s.Reader, dryActions{s})
		return err
	}
	return work.inTurn(ctx, func() error {
		return s.rollBack(ctx, func(tx *Tx) error {
			_, err := work.Transacted(ctx, tx)
			return err
		})
	})
}

// Read runs work that changes nothing and returns the response.
func (s *Store) Read(ctx context.Context, work Work) (Response, error) {
	return work.Batched(ctx, &s.Reader, &batchedActions{Store: s})
}

// notSentYet is the result of sending a message in a dry run.
var notSentYet Sent

// dryActions checks the rules. It returns empty pages, because nobody sees them.
type dryActions struct{ *Store }

func (d dryActions) Messages(
	ctx context.Context, view *ConversationView, _, _ int64, before *uuid.UUID, _ int64,
) (*MessagePage, error) {
	_, err := d.newestBefore(ctx, view, before)
	return &MessagePage{}, err
}

func (dryActions) MarkRead(context.Context, uuid.UUID, ReadRange) error { return nil }

func (dryActions) MarkFirstRead(context.Context, uuid.UUID, ReadRange) error { return nil }

func (dryActions) ReadUnread(context.Context, uuid.UUID, UnreadPage) (*Unread, error) {
	return &Unread{}, nil
}

func (dryActions) ReadThrough(context.Context, uuid.UUID, Through, UnreadPage) (*Unread, error) {
	return &Unread{}, nil
}

func (d dryActions) SendMessage(ctx context.Context, message OutgoingMessage) (*Sent, error) {
	return &notSentYet, d.checkMessage(ctx, message)
}

// batchedActions collects the effect of a call for the group commit. What needs a transaction returns errNotBatched.
type batchedActions struct {
	*Store
	message OutgoingMessage
	sent    Sent // its conversation is uuid.Nil if no message is sent
	page    *readPage
}

func (a *batchedActions) SendMessage(ctx context.Context, message OutgoingMessage) (sent *Sent, err error) {
	to := message.To
	if message.Kind == KindPrivate {
		if to, err = a.PrivateChat(ctx, message.Sender, message.To); err != nil {
			return nil, err
		}
	}
	if to == uuid.Nil { // the private chat is still to be created
		return nil, a.orRefusal(ctx, message)
	}
	a.message, a.sent.ConversationID = message, to
	return &a.sent, nil
}

func (a *batchedActions) sends() bool { return a.sent.ConversationID != uuid.Nil }

func (a *batchedActions) MarkRead(_ context.Context, agent uuid.UUID, read ReadRange) error {
	a.page = &readPage{agent: agent, ranges: []ReadRange{read}}
	return nil
}

// MarkFirstRead happens once to a membership.
func (a *batchedActions) MarkFirstRead(context.Context, uuid.UUID, ReadRange) error {
	return errNotBatched
}

// ReadUnread first finds out whether there is something: for most polls there is nothing.
func (a *batchedActions) ReadUnread(ctx context.Context, agent uuid.UUID, page UnreadPage) (*Unread, error) {
	found, err := a.hasUnread(ctx, agent)
	if !found || err != nil {
		return &Unread{}, err
	}
	unread, err := a.Unread(ctx, agent, page)
	switch {
	case err != nil:
		return nil, err
	case len(unread.Notices) > 0:
		return nil, errNotBatched
	}
	a.page = &readPage{agent: agent, ranges: unread.Ranges(), once: true}
	return unread, nil
}

// hasUnread asks together with other polls.
func (a *batchedActions) hasUnread(ctx context.Context, agent uuid.UUID) (bool, error) {
	poll := &unreadPoll{agent: agent}
	if err := a.group.polls.ask(ctx, poll); err != nil { // the batch may still write to it
		return false, err
	}
	return poll.found, nil
}

func (a *batchedActions) ReadThrough(ctx context.Context, agent uuid.UUID, through Through, page UnreadPage) (*Unread, error) {
	switch {
	case len(through.Notices) > 0:
		return nil, errNotBatched
	case len(through.Ranges) > 0:
		a.page = &readPage{agent: agent, ranges: through.Ranges}
		return a.unreadBehind(ctx, agent, through.Ranges, page)
	}
	found, err := a.hasUnread(ctx, agent)
	if found { // it marks nothing
		return a.Unread(ctx, agent, page)
	}
	return &Unread{}, err
}

// Commit runs work and closes its payment in one transaction, and returns the response. It shares a group commit with other calls, or
// has a transaction of its own. It returns a Refusal if the work is rejected, ErrStalePayment if the payment was closed before or a
// voucher's payment identifier is in the ledger, and ErrVoucherMismatch if the voucher cannot be charged; then nothing has changed. See
// NotCommitted for other errors.
func (s *Store) Commit(ctx context.Context, work Work, closing Closing) (response Response, err error) {
	if work.Transacted == nil && closing.Deposit == nil {
		if response, err = s.commitBatched(ctx, &work, closing); !errors.Is(err, errNotBatched) {
			return response, err
		}
	}
	if err := s.checkName(ctx, closing.Charge); err != nil {
		return Response{}, err
	}
	err = work.inTurn(ctx, func() error {
		return s.Transaction(ctx, func(tx *Tx) error {
			if err := closing.lock(ctx, tx); err != nil {
				return err
			}
			if response, err = work.in(ctx, tx); err != nil {
				return err
			}
			if err := closing.seal(response); err != nil {
				return err
			}
			return closing.close(ctx, tx)
		})
	})
	return response, err
}

// checkName returns ErrStalePayment if the payment identifier or idempotency key of a voucher is in the ledger. The transaction finds that
// too, but only after it has made the effect, which would cost the payer nothing.
func (s *Store) checkName(ctx context.Context, charge *VoucherCharge) error {
	if charge == nil {
		return nil
	}
	payment := charge.Payment
	for column, name := range map[string]*string{"payment_identifier": payment.PaymentIdentifier, "idempotency_key": payment.IdempotencyKey} {
		if name == nil {
			continue
		}
		known, err := s.paymentNamed(ctx, column, payment.AgentID, payment.Payer, payment.Operation, *name)
		if err == nil && known != nil {
			err = ErrStalePayment
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitBatched is Commit in the group commit. It returns errNotBatched if nothing changed and the call needs a transaction of its own,
// which may return the reason. Work is then what is left to do: a read is not executed again.
func (s *Store) commitBatched(ctx context.Context, work *Work, closing Closing) (response Response, err error) {
	effect := &batchedActions{Store: s}
	if response, err = work.Batched(ctx, &s.Reader, effect); err != nil {
		return Response{}, err
	}
	if err := closing.seal(response); err != nil {
		return Response{}, err
	}
	if charge := closing.Charge; charge != nil {
		item := *charge // the batch may write to it after the call gave up
		closing.Charge = &item
		defer func() {
			if err == nil {
				charge.Channel = item.Channel
			}
		}()
	}
	switch {
	case effect.sends():
		err = s.group.sends.send(ctx, paidMessage{OutgoingMessage: effect.message, Closing: closing, conversation: effect.sent.ConversationID})
	default:
		if closing.page = effect.page; closing.page == nil {
			work.Batched = Done(response).Batched
		}
		batches := s.group.deliveries
		if closing.Charge != nil {
			batches = s.group.charges
		}
		err = batches.do(ctx, closing)
	}
	return response, err
}

// orRefusal returns errNotBatched for a message, or its refusal, which needs no transaction.
func (s *Store) orRefusal(ctx context.Context, message OutgoingMessage) error {
	if refusal, refused := errors.AsType[*Refusal](s.checkMessage(ctx, message)); refused {
		return refusal
	}
	return errNotBatched
}

// lock locks the payment channel, if there is one, and returns ErrVoucherMismatch if the voucher cannot be charged to it. The voucher of a
// deposit is charged at once.
func (c Closing) lock(ctx context.Context, tx *Tx) (err error) {
	switch {
	case c.Charge != nil:
		err = tx.lockFitting(ctx, c.Charge)
	case c.Deposit != nil:
		c.Deposit.Channel, err = tx.chargeDeposit(ctx, c.Delivery.Payment, c.Deposit.Voucher, c.Deposit.Chain)
	}
	return err
}

// seal adds the response to the row of the payment.
func (c Closing) seal(response Response) error {
	stored, err := c.Encode(response)
	switch {
	case err != nil:
		return err
	case c.Charge != nil:
		c.Charge.Payment.Response = stored
	default:
		c.Delivery.Response = stored
	}
	return nil
}

func (c Closing) payment() uuid.UUID {
	if c.Charge != nil {
		return c.Charge.Payment.ID
	}
	return c.Delivery.Payment
}

// keys are what one statement can change only once: the payment, or the payment channel that is charged, and the markers of an agent.
func (c Closing) keys() []any {
	keys := []any{c.payment()}
	if c.Charge != nil {
		keys[0] = c.Charge.Voucher.Channel
	}
	if c.page != nil {
		keys = append(keys, c.page.agent)
	}
	return keys
}

// bytes is the size of the response that the ledger stores.
func (c Closing) bytes() int {
	if c.Charge != nil {
		return len(c.Charge.Payment.Response)
	}
	return len(c.Delivery.Response)
}

// closedPayment is a row of deliverPayments or chargeVouchers: a payment that it has closed.
type closedPayment struct {
	ID uuid.UUID
	chargedChannel
}

// close closes the payment in this transaction. The statement of the group commit skips a payment that is locked, so this waits for its
// lock before, and after the effect: other transactions lock an account first and then a payment too.
func (c Closing) close(ctx context.Context, tx *Tx) error {
	var closed []closedPayment
	batch := &pgx.Batch{}
	if c.Charge == nil { // a voucher's payment is not in the ledger yet
		batch.Queue(`SELECT FROM payments WHERE id = @id FOR NO KEY UPDATE`, named{"id": c.payment()})
	}
	statement, values := closeStatement(batchOf(c))
	queue(batch, &closed, statement, values)
	if err := tx.send(ctx, batch); err != nil {
		return fmt.Errorf("close payment: %w", err)
	}
	return c.done(closed, ErrStalePayment)
}

// closeStatement returns the statement for a batch. Either all of it charge a voucher, or none does.
func closeStatement(batch []batchItem[Closing]) (text string, values pairs) {
	if batch[0].value.Charge != nil {
		values = voucherValues(batch, func(c Closing) *VoucherCharge { return c.Charge })
		if !slices.ContainsFunc(batch, func(item batchItem[Closing]) bool { return item.value.page != nil }) {
			return chargeVouchers, values
		}
		return chargePages, pageValues(values, batch)
	}
	return deliverPayments, pageValues(deliveryValues(batch, func(c Closing) *Delivery { return c.Delivery }), batch)
}

// closeBatch closes payments of calls that record a response, and mark what it shows as read.
func (r *Reader) closeBatch(ctx context.Context, batch []batchItem[Closing]) {
	statement, values := closeStatement(batch)
	closed, err := query[closedPayment](ctx, r, statement, values)
	finish(batch, func(_ int, c Closing) error {
		switch {
		case rolledBack(err):
			return errNotBatched
		case err != nil:
			return fmt.Errorf("close payment: %w", err)
		}
		return c.done(closed, errNotBatched) // a transaction of its own returns the reason
	})
}

// done completes a charge, or returns missing if the payment was not closed.
func (c Closing) done(closed []closedPayment, missing error) error {
	i := slices.IndexFunc(closed, func(one closedPayment) bool { return one.ID == c.payment() })
	if i < 0 {
		return missing
	}
	c.Charge.done(closed[i].chargedChannel)
	return nil
}
