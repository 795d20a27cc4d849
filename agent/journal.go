package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// open is a call whose outcome is not known, or a credit. The payment in it can be sent by everybody who reads it, and a message's content
// is in its body.
type open struct {
	Intent intent
	Signed client.SignedPayment
	Since  time.Time
}

// keyHeader is not stored: the API key has a place of its own.
const keyHeader = "X-Api-Key"

func (l *Ledger) Signed(ctx context.Context, payment client.SignedPayment) error {
	payment.Header = payment.Header.Clone()
	payment.Header.Del(keyHeader)
	content, err := json.Marshal(payment)
	if err != nil {
		return err
	}
	nonce, validBefore, err := validity(payment.Payment)
	if err != nil {
		return err
	}
	of := intentOf(ctx)
	return l.transact(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO calls (id, at, operation, peer, request, signed) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
			ON CONFLICT (id) DO UPDATE SET
				operation = ?3, peer = ?4, request = ?5, signed = ?6, status = NULL, charged = 0, again = 0`,
			payment.ID, micros(l.now()), of.Operation, of.Peer, of.Request, string(content)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			UPDATE payments SET signed = 1, nonce = ?2, valid_before = ?3 WHERE number = (SELECT max(number) FROM payments WHERE call = ?1)`,
			payment.ID, nonce, validBefore)
		return err
	})
}

// validity returns the nonce of an exact payment, and until when it is valid, in Unix seconds. Other payments have neither.
func validity(payment string) (nonce string, validBefore int64, err error) {
	decoded, err := x402.DecodePayment(payment)
	exact, ok := decoded.(*x402.PaymentPayload)
	if err != nil || !ok {
		return "", 0, err
	}
	validBefore, err = strconv.ParseInt(exact.Payload.Authorization.ValidBefore, 10, 64)
	return exact.Payload.Authorization.Nonce, validBefore, err
}

// Closed implements [client.Journal]. If it fails, the call stays open: sending the payment again returns the same response.
func (l *Ledger) Closed(ctx context.Context, id string, outcome client.Outcome) {
	ctx = context.WithoutCancel(ctx)
	if !l.isOpen(ctx, id) {
		return // nothing was signed: the operation is free, or the server refused before it asked for a payment
	}
	of := intentOf(ctx)
	if o := l.contract[of.Operation]; o != nil && outcome.Status != 0 && !o.decides(outcome.Status, outcome.Body) {
		return // the server may have charged, and returns its response when the payment is sent again
	}
	if outcome.Charged > 0 || outcome.Status == http.StatusOK {
		if l.keep(ctx, id, outcome.Body) != nil {
			return
		}
	}
	_ = l.close(ctx, of, id, outcome)
}

// close stores an outcome and, in the same transaction, ends the call. What was charged and rejected becomes a credit.
func (l *Ledger) close(ctx context.Context, of intent, id string, outcome client.Outcome) error {
	done := outcome.Status == http.StatusOK
	var problem client.ParleyError
	_ = json.Unmarshal(outcome.Body, &problem) // of another version: no code
	// The same call keeps its payment identifier after a refusal, unless the server has charged that.
	again := !done && outcome.Charged == 0 && problem.Code != client.ErrorCodePaymentReused
	return l.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			UPDATE calls SET signed = NULL, status = ?2, charged = ?3, cost = max(cost, ?3), again = ?4 AND cost = 0,
				credit = CASE WHEN ?2 = 200 THEN NULL WHEN ?3 > 0 THEN signed ELSE credit END
			WHERE id = ?1`, id, outcome.Status, outcome.Charged, again)
		if err == nil && outcome.Status == 0 { // what a voucher allows is counted once, so the next voucher depends on it
			_, err = tx.ExecContext(ctx, `
				UPDATE payments SET released = 1 WHERE channel = '' AND number = (SELECT max(number) FROM payments WHERE call = ?)`, id)
		}
		if err == nil && of.Operation == operationCreateAccount &&
			(done || problem.Code == client.ErrorCodeInvalidTAN || problem.Code == client.ErrorCodeUsernameTaken) {
			err = forgetReserved(ctx, tx, l.now())
		}
		if err != nil || !done {
			return err
		}
		body, err := withoutSecrets(outcome.Body)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO responses (at, call, operation, request, charged, body) VALUES (?, ?, ?, ?, ?, ?)`,
			micros(l.now()), id, of.Operation, of.Request, outcome.Charged, string(body))
		return err
	})
}

func (l *Ledger) Open() ([]open, error) {
	return l.calls("SELECT id, operation, peer, request, at, signed FROM calls WHERE signed IS NOT NULL ORDER BY at")
}

// Credits returns the payments that pay a corrected call each, the oldest first.
func (l *Ledger) Credits() ([]open, error) {
	return l.calls("SELECT id, operation, peer, request, at, credit FROM calls WHERE credit IS NOT NULL ORDER BY at")
}

func (l *Ledger) calls(query string) ([]open, error) {
	return collect(context.Background(), l.db, func(row *sql.Rows, call *open) error {
		var at int64
		var payment []byte
		of := &call.Intent
		if err := row.Scan(&of.ID, &of.Operation, &of.Peer, &of.Request, &at, &payment); err != nil {
			return err
		}
		call.Since = fromMicros(at)
		return json.Unmarshal(payment, &call.Signed)
	}, query)
}
