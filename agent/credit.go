package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/parley-chat/parley/client"
)

// A credit is a payment that the server charged for a call that it then rejected. The contract lets the same payment pay a corrected
// call of the same operation. Its file is in the folder credits.

func (l *Ledger) creditPath(id string) string { return filepath.Join(l.folder, "credits", id+".json") }

// keepCredit keeps an open call as a credit.
func (l *Ledger) keepCredit(id string) error {
	content, err := os.ReadFile(l.openPath(id))
	if err == nil {
		err = os.MkdirAll(filepath.Join(l.folder, "credits"), 0o700)
	}
	if err == nil {
		err = writeFile(l.creditPath(id), content)
	}
	if err != nil {
		return fmt.Errorf("keep the credit: %w", err)
	}
	return nil
}

// Credits returns the payments that pay a corrected call each.
func (l *Ledger) Credits() ([]open, error) { return readCalls(filepath.Join(l.folder, "credits")) }

// redeem makes a call with a credit of its operation. It returns nil without an error if there is none that the server accepts.
func (a *Agent) redeem(ctx context.Context, o *Operation, arguments map[string]any, of intent) (*Result, error) {
	credits, err := a.ledger.Credits()
	if err != nil {
		return nil, err
	}
	for _, credit := range credits {
		if credit.Intent.Operation != o.ID || !a.terms.isServerOf(credit.Signed.URL) { // its identifier is a secret of that server
			continue
		}
		result, err := a.redeemOne(ctx, o, arguments, of, credit)
		refused, ok := errors.AsType[*RefusedError](err)
		gone := ok && (refused.Status == http.StatusPaymentRequired || refused.Code == client.ErrorCodePaymentReused)
		if result != nil || gone {
			if err := os.Remove(a.ledger.creditPath(credit.Intent.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		if !gone {
			return result, err
		}
	}
	return nil, nil //nolint:nilnil // none
}

func (a *Agent) redeemOne(ctx context.Context, o *Operation, arguments map[string]any, of intent, credit open) (*Result, error) {
	if a.ledger.frozen() {
		return nil, ErrFrozen
	}
	of.ID = credit.Intent.ID
	ctx = withIntent(ctx, of)
	request, err := o.request(ctx, a.terms.server(), arguments)
	if err != nil {
		return nil, err
	}
	signed := credit.Signed
	signed.Price, signed.Amount = 0, 0 // it was charged before
	signed.Method, signed.URL, signed.Header = request.Method, request.URL.String(), request.Header
	signed.Body = nil
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		if signed.Body, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	if err := a.ledger.Signed(ctx, signed); err != nil {
		return nil, err
	}
	response, err := a.payer.Resume(ctx, signed)
	return a.read(ctx, of, response, err)
}

// readCalls returns the calls whose files are in a folder, the oldest first.
func readCalls(folder string) (calls []open, err error) {
	files, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".json" {
			continue // what a crash left of a file that was being written
		}
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has closed it
		}
		var call open
		if err == nil {
			err = json.Unmarshal(content, &call)
		}
		if err != nil {
			return nil, fmt.Errorf("read the open payment %s: %w", file.Name(), err)
		}
		calls = append(calls, call)
	}
	slices.SortFunc(calls, func(a, b open) int { return a.Since.Compare(b.Since) })
	return calls, nil
}

// Refund asks the server for the part of the deposits in the payment channel that it did not charge, and returns the amount in atomic
// units. It needs no account; the API key of one goes with it ([keyed]), because that proves more than a voucher that was claimed and is
// public. A server that does not answer cannot keep that part: the wallet can withdraw it on the blockchain.
func (a *Agent) Refund(ctx context.Context) (uint64, error) {
	o, err := a.contract.Operation(operationGetOwnAgent)
	if err != nil {
		return 0, err
	}
	refunded, err := a.payer.Refund(ctx, a.terms.server()+o.Path, "")
	return refunded, withoutURL(err)
}
