package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
)

// Work is what a paid call does in the database.
type Work struct {
	// Run loads with the caller's right, makes the effect, and returns the response. It may run several times: in a dry run, whose
	// changes are lost, and for the commit.
	Run func(ctx context.Context, tx *Store) (response []byte, err error)
	// Shared is true if Run changes at most one thing, at its end: it sends a message with SendMessage, or it marks messages as read.
	// Such a call shares its commit with others if it can.
	Shared bool
}

// Made is work that is done: it has the response and changes nothing.
func Made(response []byte) Work {
	return Work{Shared: true, Run: func(context.Context, *Store) ([]byte, error) { return response, nil }}
}

// Closing is how the payment of a call ends, in the transaction of the effect: it is delivered, or a voucher is charged and recorded as
// delivered.
type Closing struct {
	Delivery *Delivery
	Deposit  *DepositCharge // only with Delivery: the payment deposited into a payment channel, and brought its voucher
	Charge   *VoucherCharge
	// Seal returns the response as the ledger stores it; nil if it stores none.
	Seal func(response []byte) ([]byte, error)
}

// DryRun runs work without effect and returns the error that Commit would return at this moment.
func (s *Store) DryRun(ctx context.Context, work Work) error {
	if work.Shared {
		dry := *s
		dry.mode = dryRun
		_, err := work.Run(ctx, &dry)
		return err
	}
	err := s.transact(ctx, dryRun, func(tx *Store) error {
		if _, err := work.Run(ctx, tx); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

// Commit runs work and closes its payment in one transaction, and returns the response. It shares a group commit with other calls, or
// has a transaction of its own. It returns a Refusal if the work is rejected, ErrStalePayment if the payment was closed before, and
// ErrVoucherMismatch if the voucher cannot be charged; then nothing has changed. See NotCommitted for other errors.
func (s *Store) Commit(ctx context.Context, work Work, closing Closing) (response []byte, err error) {
	if work.Shared && closing.Deposit == nil {
		if response, err = s.commitShared(ctx, work, closing); !errors.Is(err, errNotBatched) {
			return response, err
		}
	}
	err = s.Transaction(ctx, func(tx *Store) error {
		if err := closing.charge(ctx, tx); err != nil {
			return err
		}
		if response, err = work.Run(ctx, tx); err != nil {
			return err
		}
		if err := closing.seal(response); err != nil {
			return err
		}
		if closing.Charge != nil {
			return tx.recordVoucher(ctx, closing.Charge.Payment, closing.Charge.Channel.UsedAt)
		}
		return tx.deliverPayment(ctx, *closing.Delivery)
	})
	return response, err
}

// commitShared is Commit in the group commit. It returns errNotBatched if nothing changed and the call needs a transaction of its own,
// which may return the reason.
func (s *Store) commitShared(ctx context.Context, work Work, closing Closing) (response []byte, err error) {
	item := *s
	item.mode, item.pending = shared, &pending{}
	if response, err = work.Run(ctx, &item); err != nil {
		return nil, err
	}
	if err := closing.seal(response); err != nil {
		return nil, err
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
	switch effect := item.pending; {
	case effect.message != nil && effect.mark != nil:
		return nil, errNotBatched
	case effect.message != nil:
		err = s.sendItem(ctx, paidMessage{OutgoingMessage: *effect.message, Closing: closing, conversation: effect.conversation})
	case effect.mark != nil && closing.Charge != nil:
		err = s.chargeRead(ctx, closing.Charge, effect.mark)
	case effect.mark != nil:
		err = s.deliverRead(ctx, *closing.Delivery, effect.mark)
	case closing.Charge != nil:
		err = s.charges.do(ctx, closing.Charge)
	default:
		err = s.deliveries.do(ctx, *closing.Delivery)
	}
	return response, err
}

// pending is the effect of a call that shares its commit.
type pending struct {
	message      *OutgoingMessage
	conversation uuid.UUID // of the message
	mark         *readMark
}

// charge charges the voucher in this transaction, if there is one.
func (c *Closing) charge(ctx context.Context, tx *Store) (err error) {
	switch {
	case c.Charge != nil:
		c.Charge.Channel, err = tx.chargeVoucher(ctx, c.Charge.Voucher, c.Charge.MaxAge)
	case c.Deposit != nil:
		c.Deposit.Channel, err = tx.chargeDeposit(ctx, c.Delivery.Payment, c.Deposit.Voucher, c.Deposit.Chain)
	}
	return err
}

// seal adds the response to the row of the payment.
func (c *Closing) seal(response []byte) error {
	sealed, err := c.Seal(response)
	if err != nil {
		return err
	}
	if c.Charge != nil {
		c.Charge.Payment.Response = sealed
	} else {
		c.Delivery.Response = sealed
	}
	return nil
}
