package agent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/parley-chat/parley/client"
)

// A credit is a payment that the server charged for a call that it then rejected. The contract lets the same payment pay a corrected
// call of the same operation.

// redeem makes a call with a credit of its operation. It returns nil without an error if there is none that the server accepts.
func (a *Agent) redeem(ctx context.Context, o *Operation, arguments map[string]any, of intent) (*Result, error) {
	credits, err := a.ledger.Credits()
	if err != nil {
		return nil, err
	}
	for _, credit := range credits {
		address, err := url.Parse(credit.Signed.URL)
		if credit.Intent.Operation != o.ID || err != nil || !a.terms.agreed().isServer(address) {
			continue // its identifier is a secret of that server
		}
		of.ID = credit.Intent.ID
		ctx := withIntent(ctx, of)
		request, err := o.request(ctx, a.Server(), arguments)
		if err != nil {
			return nil, err
		}
		signed := credit.Signed
		signed.Price, signed.Amount = 0, 0 // it was charged before
		signed.Method, signed.URL, signed.Header, signed.Body = request.Method, request.URL.String(), request.Header, nil
		if request.Body != nil {
			signed.Body, err = io.ReadAll(request.Body)
		}
		if err := cmp.Or(err, a.ledger.Signed(ctx, signed)); err != nil {
			return nil, err
		}
		response, err := a.payer.Resume(ctx, signed)
		result, err := a.read(ctx, of, response, err)
		f, ok := errors.AsType[*Failure](err)
		if !ok || f.Status != http.StatusPaymentRequired && !refusedAs(err, client.ErrorCodePaymentReused) {
			return result, err
		}
		if err := a.ledger.exec(ctx, "UPDATE calls SET credit = NULL WHERE id = ?", of.ID); err != nil {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // none
}
