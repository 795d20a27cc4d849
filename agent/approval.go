package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// approvalTime is how long an approval can be given, and how long it is then good.
const approvalTime = 10 * time.Minute

// Approval lets one call above the limits be paid once. The agent asks for it; a person gives it.
type Approval struct {
	ID        string    `json:"id"` // a few letters and digits
	Operation string    `json:"operation"`
	Peer      string    `json:"peer,omitempty"`
	Request   string    `json:"request"` // the hash of the request
	Price     uint64    `json:"price"`   // atomic units
	AskedAt   time.Time `json:"asked_at"`
	GivenAt   time.Time `json:"given_at,omitzero"`
}

var (
	// ErrNoApproval means that no call waits for the approval, or that it waits no more.
	ErrNoApproval = errors.New("no call waits for this approval; approvals end after ten minutes")
	approvalID    = regexp.MustCompile(`^[a-z0-9]{4,12}$`)
)

func (l *Ledger) approvalPath(id string) string {
	return filepath.Join(l.folder, "approvals", id+".json")
}

// Ask returns the approval of a call, which it creates if there is none.
func (l *Ledger) Ask(ctx context.Context, operation, peer, request string, price uint64) (*Approval, error) {
	var asked *Approval
	err := l.locked(ctx, func(func(entry) error) error {
		var err error
		if asked, err = l.findApproval(request); err != nil || asked != nil {
			return err
		}
		asked = &Approval{ID: strings.ToLower(rand.Text()[:6]), Operation: operation, Peer: peer, Request: request, Price: price, AskedAt: l.now().UTC()}
		return l.saveApproval(asked)
	})
	return asked, err
}

// Approval returns what waits for an approval.
func (l *Ledger) Approval(ctx context.Context, id string) (asked *Approval, err error) {
	err = l.locked(ctx, func(func(entry) error) error {
		asked, err = l.loadApproval(id)
		return err
	})
	return asked, err
}

// Approve gives an approval. Only a person may call it.
func (l *Ledger) Approve(ctx context.Context, id string) (*Approval, error) {
	var given *Approval
	err := l.locked(ctx, func(func(entry) error) error {
		found, err := l.loadApproval(id)
		if err != nil {
			return err
		}
		if _, used := l.approvedAmount(id); used || !l.now().Before(found.AskedAt.Add(approvalTime)) {
			return ErrNoApproval
		}
		found.GivenAt = l.now().UTC()
		given = found
		return l.saveApproval(found)
	})
	return given, err
}

// approved reports whether a call has an approval that covers what can be taken with its next payment too. The caller has locked the
// ledger.
func (l *Ledger) approved(of intent, price, amount uint64) (bool, error) {
	if of.Approval == "" {
		return false, nil
	}
	approval, err := l.loadApproval(of.Approval)
	if errors.Is(err, ErrNoApproval) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	good := !approval.GivenAt.IsZero() && l.now().Before(approval.GivenAt.Add(approvalTime))
	taken, _ := l.approvedAmount(approval.ID)
	return good && approval.Operation == of.Operation && approval.Request == of.Request && price <= approval.Price && taken+amount <= approval.Price, nil
}

// findApproval returns the approval of a request that can be given or used, or nil. It removes old ones.
func (l *Ledger) findApproval(request string) (*Approval, error) {
	folder, err := os.ReadDir(filepath.Join(l.folder, "approvals"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none
	}
	if err != nil {
		return nil, err
	}
	var found *Approval
	for _, file := range folder {
		id, whole := strings.CutSuffix(file.Name(), ".json")
		if !whole {
			continue // what a crash left of a file that was being written
		}
		approval, err := l.loadApproval(id)
		if err != nil {
			return nil, err
		}
		switch {
		case l.now().After(approval.AskedAt.Add(2 * approvalTime)):
			if err := os.Remove(l.approvalPath(id)); err != nil {
				return nil, err
			}
		case approval.Request == request:
			if _, used := l.approvedAmount(id); !used && l.alive(approval) {
				found = approval
			}
		}
	}
	return found, nil
}

// alive reports whether an approval can still be given, or used if it was given.
func (l *Ledger) alive(approval *Approval) bool {
	since := approval.AskedAt
	if !approval.GivenAt.IsZero() {
		since = approval.GivenAt
	}
	return l.now().Before(since.Add(approvalTime))
}

func (l *Ledger) loadApproval(id string) (*Approval, error) {
	if !approvalID.MatchString(id) {
		return nil, ErrNoApproval
	}
	content, err := os.ReadFile(l.approvalPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoApproval
	}
	var approval Approval
	if err == nil {
		err = json.Unmarshal(content, &approval)
	}
	if err != nil {
		return nil, fmt.Errorf("read the approval: %w", err)
	}
	return &approval, nil
}

func (l *Ledger) saveApproval(approval *Approval) error {
	if err := os.MkdirAll(filepath.Join(l.folder, "approvals"), 0o700); err != nil {
		return err
	}
	content, err := json.Marshal(approval)
	if err != nil {
		return err
	}
	return writeFile(l.approvalPath(approval.ID), content)
}

// String describes what is approved, for the person.
func (a *Approval) String() string {
	text := fmt.Sprintf("%s for %s USD", a.Operation, x402.FormatUSD(a.Price))
	if a.Peer != "" {
		text += fmt.Sprintf(" to %q", a.Peer)
	}
	return text
}
