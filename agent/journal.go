package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// open is a call whose outcome is not known: its file is in the folder open from before the payment is sent until the response
// is stored. The payment in it can be sent by everybody who reads it, and a message's content is in its body.
type open struct {
	Intent intent               `json:"intent"`
	Signed client.SignedPayment `json:"signed"`
	Since  time.Time            `json:"since"`
}

// keyHeader is not stored: the API key has a place of its own.
const keyHeader = "X-Api-Key"

var paymentID = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (l *Ledger) openPath(id string) string { return filepath.Join(l.folder, "open", id+".json") }

// open returns a call whose outcome is not known.
func (l *Ledger) open(id string) (call open, err error) {
	content, err := os.ReadFile(l.openPath(id))
	if err == nil {
		err = json.Unmarshal(content, &call)
	}
	return call, err
}

// Signed implements [client.Journal].
func (l *Ledger) Signed(ctx context.Context, payment client.SignedPayment) error {
	if !paymentID.MatchString(payment.ID) {
		return errors.New("the payment identifier is not 64 hex digits")
	}
	payment.Header = payment.Header.Clone()
	payment.Header.Del(keyHeader)
	content, err := json.Marshal(open{intentOf(ctx), payment, l.now().UTC()})
	if err != nil {
		return err
	}
	e := entry{Step: stepSigned, ID: payment.ID, Amount: payment.Amount, Scheme: payment.Offer.Scheme, Asset: payment.Offer.Asset}
	decoded, err := x402.DecodePayment(payment.Payment)
	if err != nil {
		return err
	}
	validBefore := ""
	switch signed := decoded.(type) {
	case *x402.PaymentPayload:
		e.Nonce, validBefore = signed.Payload.Authorization.Nonce, signed.Payload.Authorization.ValidBefore
	case *x402.BatchPayment:
		if deposit := signed.Payload.Deposit; deposit != nil {
			validBefore = deposit.Authorization.ERC3009.ValidBefore
		}
	}
	if validBefore != "" {
		if e.ValidBefore, err = strconv.ParseInt(validBefore, 10, 64); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(l.folder, "open"), 0o700); err != nil {
		return err
	}
	if err := writeFile(l.openPath(payment.ID), content); err != nil {
		return fmt.Errorf("store the payment: %w", err)
	}
	err = l.locked(ctx, func(add func(entry) error) error { return add(e) })
	if err != nil {
		_ = os.Remove(l.openPath(payment.ID)) // it is not sent
	}
	return err
}

// Closed implements [client.Journal]. It stores the response before it forgets the payment.
func (l *Ledger) Closed(ctx context.Context, id string, outcome client.Outcome) {
	if !l.isOpen(id) {
		return // nothing was signed: the operation is free, or the server refused before it asked for a payment
	}
	of := intentOf(ctx)
	err := l.close(context.WithoutCancel(ctx), of, id, outcome)
	if err == nil && outcome.Charged > 0 && outcome.Status != http.StatusOK {
		err = l.keepCredit(id)
	}
	if err == nil {
		_ = os.Remove(l.openPath(id)) // if it stays, sending the payment again returns the same response
	}
}

func (l *Ledger) close(ctx context.Context, of intent, id string, outcome client.Outcome) error {
	if outcome.Charged > 0 || outcome.Status == http.StatusOK {
		if err := l.keep(id, outcome.Body); err != nil {
			return err
		}
		if err := l.spool.store(ctx, of, outcome); err != nil {
			return err
		}
	}
	e := entry{Step: stepAnswered, ID: id, Operation: of.Operation, Peer: of.Peer, Status: outcome.Status, Charged: outcome.Charged}
	if settled, err := x402.DecodeSettleResponse(outcome.Header.Get(x402.HeaderPaymentResponse)); err == nil {
		e.Transaction = settled.Transaction
	}
	if outcome.Charged == 0 && outcome.Status != http.StatusOK {
		e.Step = stepRefused
		var problem client.ParleyError
		_ = json.Unmarshal(outcome.Body, &problem) // a proxy's response is not JSON
		// The same call keeps its payment identifier, unless the server has charged that.
		if problem.Code != client.ErrorCodePaymentReused && !l.wasCharged(id) {
			e.Request = of.Request
		}
	}
	return l.locked(ctx, func(add func(entry) error) error { return add(e) })
}

// Open returns the calls whose outcome is not known, the oldest first.
func (l *Ledger) Open() ([]open, error) { return readCalls(filepath.Join(l.folder, "open")) }
