package agent

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
)

// balance returns what the wallet has and what its payment channels have left, in atomic units. The first is nil if it is not known.
func (a *Agent) balance(ctx context.Context) (own *uint64, deposited uint64) {
	deposited, _ = a.Deposited() // 0 if it cannot be read
	found, err := a.Balance(ctx)
	if err != nil {
		return nil, deposited
	}
	return &found, deposited
}

// ErrNoChain means that the balance cannot be read.
var ErrNoChain = errors.New("no endpoint of the blockchain is known; name one with: parley init --rpc-url URL")

// Balance returns what the wallet has on the blockchain, without deposits in payment channels, in atomic units.
func (a *Agent) Balance(ctx context.Context) (uint64, error) {
	agreed := a.terms.agreed()
	if a.chain == nil || agreed.Asset == "" {
		return 0, ErrNoChain
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	return a.chain.Balance(ctx, agreed.Asset, a.address)
}

// checkMoney returns a [*NoMoneyError] if a call was refused for lack of money and the wallet still has less than a price. So nothing is
// signed that cannot be taken now and could be later.
func (a *Agent) checkMoney(ctx context.Context, price uint64) error {
	poor, err := loadSetting[[]string](ctx, a.ledger.db, poorSetting, nil)
	if err != nil || len(poor) == 0 || price == 0 {
		return err
	}
	own, deposited := a.balance(ctx)
	if own != nil && *own < price && deposited < price {
		return &NoMoneyError{price, own, a.address, a.terms.agreed().Network}
	}
	// Now the payee can take what was refused.
	return a.ledger.exec(ctx, "DELETE FROM settings WHERE name = ?", poorSetting)
}

// orNoMoney returns a [*NoMoneyError] in place of a payment that was refused for lack of money. If the blockchain shows the lack, the
// payment does not count until the wallet has enough.
func (a *Agent) orNoMoney(ctx context.Context, err error, price uint64, of intent) error {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Status != http.StatusPaymentRequired || refused.ParleyError.Error == nil ||
		!strings.Contains(*refused.ParleyError.Error, "insufficient") {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	own, _ := a.balance(ctx)
	if own != nil && *own < price {
		err := a.ledger.transact(ctx, func(tx *sql.Tx) error {
			poor, err := loadSetting[[]string](ctx, tx, poorSetting, nil)
			if err != nil {
				return err
			}
			id, err := value[string](ctx, tx, "SELECT id FROM calls WHERE request = ? AND charged = 0 AND cost = 0 ORDER BY at DESC LIMIT 1",
				of.Request)
			if err != nil || id == "" {
				return err
			}
			return saveSetting(ctx, tx, poorSetting, append(poor, id))
		})
		if err != nil {
			return err
		}
	}
	return &NoMoneyError{price, own, a.address, a.terms.agreed().Network}
}
