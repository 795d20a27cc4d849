package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// SendAnywhere sends to a conversation of any kind; to a private chat, its other agent.
func (tx *Tx) SendAnywhere(ctx context.Context, conversation, sender, message uuid.UUID, content string) (*Sent, error) {
	out, err := tx.OutgoingTo(ctx, conversation, sender, message, content)
	if err != nil {
		return nil, err
	}
	return tx.SendMessage(ctx, out)
}

// SendAnywhere is that of Tx in a transaction of its own.
func (s *Store) SendAnywhere(ctx context.Context, conversation, sender, message uuid.UUID, content string) (sent *Sent, err error) {
	err = s.Transaction(ctx, func(tx *Tx) error {
		sent, err = tx.SendAnywhere(ctx, conversation, sender, message, content)
		return err
	})
	return sent, err
}

// SendAtOnce sends a message of each sender to the conversation in the same place, all in one statement.
func (s *Store) SendAtOnce(ctx context.Context, conversations, senders []uuid.UUID) error {
	var all []batchItem[paidMessage]
	for i, conversation := range conversations {
		out, err := s.OutgoingTo(ctx, conversation, senders[i], uuid.Must(uuid.NewV7()), "text")
		if err != nil {
			return err
		}
		payment := &Payment{PaymentRecord: PaymentRecord{
			ID: uuid.Must(uuid.NewV7()), X402Version: 2, Scheme: "exact", Network: "eip155:84532", Asset: "0xa", Payer: "0xb",
			Nonce: "0x" + uuid.NewString(), PayTo: "0xd",
			Amount: 7, ValidBefore: time.Now().Add(time.Hour), Operation: "send",
		}, Fingerprint: HashKey("x"), SignatureHash: HashKey("x"), Payload: []byte("{}"), Request: []byte("{}")}
		if err := s.BeginSettlement(ctx, payment, time.Minute, nil); err != nil {
			return err
		}
		all = append(all, batchItem[paidMessage]{value: paidMessage{
			OutgoingMessage: out, conversation: conversation,
			Closing: Closing{Delivery: &Delivery{Payment: payment.ID, State: payment.State, Fingerprint: payment.Fingerprint}},
		}, done: make(chan error, 1), since: time.Now()})
	}
	s.group.sends.sendBatch(ctx, all)
	var err error
	for _, item := range all {
		err = errors.Join(err, <-item.done)
	}
	return err
}

// OutgoingTo is a message to a conversation of any kind.
func (r *Reader) OutgoingTo(ctx context.Context, conversation, sender, message uuid.UUID, content string) (OutgoingMessage, error) {
	var place struct {
		Kind string
		To   uuid.UUID
	}
	err := r.gorm(ctx, &Conversation{}).
		Select("kind, coalesce((SELECT m.agent_id FROM memberships m WHERE m.conversation_id = conversations.id AND m.agent_id <> ? AND "+
			"conversations.kind = 'private'), id) AS to", sender).
		Where("id = ?", conversation).Take(&place).Error
	return OutgoingMessage{Kind: place.Kind, To: place.To, Sender: sender, ID: message, Content: content}, err
}
