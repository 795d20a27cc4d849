package store

import (
	"time"

	"github.com/google/uuid"
)

// paidMessage is a batch item: a message to a conversation, and how its payment ends.
type paidMessage struct {
	OutgoingMessage
	Closing
	conversation uuid.UUID
	locked       int // how many batches have found the conversation locked
}

// placedMessage is a row of sendMessages or sendCharged: the number of the message, 0 if it was not sent; whether another transaction has
// locked its conversation; and the code of its refusal.
type placedMessage struct {
	Number  int64
	Locked  bool
	Refusal *string
	chargedChannel
}

// result is the result of the group commit. errNotBatched means that the payment was closed before, or that the voucher cannot be charged.
func (p placedMessage) result(message paidMessage) error {
	switch {
	case p.Number > 0:
		message.Charge.done(p.chargedChannel)
		return nil
	case p.Refusal != nil:
		return message.refusal(*p.Refusal)
	}
	return errNotBatched
}

func (m paidMessage) bytes() int { return len(m.Content) + m.Closing.bytes() }

// noDelivery is the delivery of a message without a payment: its transaction closes the payment by itself.
var noDelivery Delivery

// payment is nil for noDelivery.
func (d *Delivery) payment() *uuid.UUID {
	if d == &noDelivery {
		return nil
	}
	return &d.Payment
}

// sendStatement returns the statement that sends a batch, and its values. Either all messages charge a voucher, or none does. pgx encodes
// [16]byte with fewer allocations than uuid.UUID.
func sendStatement(now time.Time, batch []batchItem[paidMessage]) (statement string, values pairs) {
	if batch[0].value.Charge != nil {
		statement, values = sendCharged, voucherValues(batch, func(m paidMessage) *VoucherCharge { return m.Charge })
	} else {
		statement, values = sendMessages, deliveryValues(batch, func(m paidMessage) *Delivery { return m.Delivery })
	}
	return statement, append(values,
		pair{"kind", column(batch, func(m paidMessage) string { return m.Kind })},
		pair{"conversation", column(batch, func(m paidMessage) [16]byte { return m.conversation })},
		pair{"recipient", column(batch, func(m paidMessage) [16]byte { return m.To })},
		pair{"sender", column(batch, func(m paidMessage) [16]byte { return m.Sender })},
		pair{"message", column(batch, func(m paidMessage) [16]byte { return m.ID })},
		pair{"content", column(batch, func(m paidMessage) string { return m.Content })},
		pair{"reply_to", optionalColumn(batch, func(m paidMessage) *uuid.UUID { return m.ReplyTo })},
		pair{"about", optionalColumn(batch, func(m paidMessage) *About { return m.About })},
		pair{"now", now})
}
