package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// approvalTime is how long an approval can be given, and how long it is then good.
const approvalTime = 10 * time.Minute

// Approval lets one call above the limits be paid once. The agent asks for it; a person gives it.
type Approval struct {
	ID        string `json:"id"` // a few letters and digits
	Operation string `json:"operation"`
	Peer      string `json:"peer,omitempty"`
	Request   string `json:"request"` // the hash of the request
	// Arguments of the call, for the person who decides.
	Arguments map[string]any `json:"arguments,omitempty"`

	Price   uint64    `json:"price"` // atomic units
	AskedAt time.Time `json:"asked_at"`
	GivenAt time.Time `json:"given_at,omitzero"`
	// Once bounds everything that the wallet ever pays for the operation: the approval was given without a person.
	Once bool `json:"once,omitempty"`
}

// ErrNoApproval means that no call waits for the approval, or that it waits no more.
var ErrNoApproval = errors.New("no call waits for this approval; approvals end after ten minutes")

// Ask returns the approval of a call, which it creates if there is none.
func (l *Ledger) Ask(ctx context.Context, of Approval) (asked *Approval, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		if asked, err = l.findApproval(ctx, tx, of.Request); err != nil || asked != nil {
			return err
		}
		asked = &of
		asked.ID, asked.AskedAt = strings.ToLower(rand.Text()[:6]), l.now().UTC()
		return saveApproval(ctx, tx, asked)
	})
	return asked, err
}

// Approval returns what waits for an approval.
func (l *Ledger) Approval(ctx context.Context, id string) (asked *Approval, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		asked, err = loadApproval(ctx, tx, id)
		return err
	})
	return asked, err
}

// Approve gives an approval. Only a person may call it.
func (l *Ledger) Approve(ctx context.Context, id string) (*Approval, error) {
	return l.approve(ctx, id, false)
}

func (l *Ledger) approve(ctx context.Context, id string, once bool) (given *Approval, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		if given, err = loadApproval(ctx, tx, id); err != nil {
			return err
		}
		_, used, err := approvedAmount(ctx, tx, id)
		if err != nil {
			return err
		}
		if used || !l.now().Before(given.AskedAt.Add(approvalTime)) {
			return ErrNoApproval
		}
		given.GivenAt, given.Once = l.now().UTC(), once
		return saveApproval(ctx, tx, given)
	})
	return given, err
}

// approved reports whether a call has an approval that covers what can be taken with its next payment too.
func (l *Ledger) approved(ctx context.Context, tx *sql.Tx, of intent, price, amount uint64) (bool, error) {
	if of.Approval == "" {
		return false, nil
	}
	approval, err := loadApproval(ctx, tx, of.Approval)
	if errors.Is(err, ErrNoApproval) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	taken, _, err := approvedAmount(ctx, tx, approval.ID)
	if err == nil && approval.Once {
		taken, err = sentFor(ctx, tx, of.Operation)
	}
	return !approval.GivenAt.IsZero() && l.alive(approval) && approval.Operation == of.Operation && approval.Request == of.Request &&
		price <= approval.Price && taken+amount <= approval.Price, err
}

// approvedAmount returns what can be taken with an approval, and whether a payment has used it.
func approvedAmount(ctx context.Context, tx *sql.Tx, id string) (amount uint64, used bool, err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT coalesce(sum(amount), 0), count(*) > 0 FROM payments
		WHERE approval = ? AND approval <> '' AND NOT released`, id).Scan(&amount, &used)
	return amount, used, err
}

// sentFor returns what the payee can take, or has taken, for all calls of an operation. A payment counts although the server says that it
// did not take it, until the blockchain shows that.
func sentFor(ctx context.Context, from queryer, operation string) (uint64, error) {
	return value[uint64](ctx, from, "SELECT coalesce(sum(amount), 0) FROM payments WHERE operation = ? AND signed AND NOT released", operation)
}

// given returns the approval of a call that a person has given, or nil.
func (l *Ledger) given(ctx context.Context, of intent) (found *Approval, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		if found, err = l.findApproval(ctx, tx, of.Request); found != nil && found.GivenAt.IsZero() {
			found = nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	return found, nil
}

// findApproval returns the approval of a request that can be given or used, or nil. It removes old ones.
func (l *Ledger) findApproval(ctx context.Context, tx *sql.Tx, request string) (*Approval, error) {
	if _, err := tx.ExecContext(ctx, "DELETE FROM approvals WHERE asked_at < ?", micros(l.now().Add(-2*approvalTime))); err != nil {
		return nil, err
	}
	approvals, err := collect(ctx, tx, scanJSON[Approval], "SELECT content FROM approvals WHERE request = ?", request)
	for _, one := range approvals {
		if _, used, err := approvedAmount(ctx, tx, one.ID); err != nil || !used && l.alive(&one) {
			return &one, err
		}
	}
	return nil, err
}

// alive reports whether an approval can still be given, or used if it was given.
func (l *Ledger) alive(approval *Approval) bool {
	return l.now().Before(cmp.Or(approval.GivenAt, approval.AskedAt).Add(approvalTime))
}

func loadApproval(ctx context.Context, tx *sql.Tx, id string) (*Approval, error) {
	found, err := collect(ctx, tx, scanJSON[Approval], "SELECT content FROM approvals WHERE id = ?", id)
	if err == nil && len(found) == 0 {
		err = ErrNoApproval
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

func saveApproval(ctx context.Context, tx *sql.Tx, approval *Approval) error {
	content, err := json.Marshal(approval)
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO approvals (id, request, asked_at, content) VALUES (?, ?, ?, ?)",
			approval.ID, approval.Request, micros(approval.AskedAt), string(content))
	}
	return err
}

// String describes what is approved, for the person.
func (a *Approval) String() string {
	text := fmt.Sprintf("%s for %s USD", a.Operation, USD(a.Price))
	if a.Peer != "" {
		text += " to " + VisibleName(a.Peer)
	}
	return text
}
