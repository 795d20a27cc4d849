package payment

import "sync"

// underWay are the amounts that this server is settling, by wallet and nonce. A wallet must hold the sum: otherwise it could send a hundred
// payments at once, of which one settles, and each of the others would cost a call to the facilitator.
type underWay struct {
	mu      sync.Mutex
	amounts map[string]map[string]*amountUnderWay
}

type amountUnderWay struct {
	amount uint64
	copies int
}

// begin adds a payment, and returns the sum of the other payments of the wallet. The caller ends it.
func (u *underWay) begin(wallet, nonce string, amount uint64) (others uint64, end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.amounts[wallet]
	if of == nil {
		of = map[string]*amountUnderWay{}
		u.amounts[wallet] = of
	}
	for other, one := range of {
		if other != nonce {
			others += one.amount
		}
	}
	if of[nonce] == nil {
		of[nonce] = &amountUnderWay{amount: amount}
	}
	of[nonce].copies++
	return others, func() { u.end(wallet, nonce) }
}

func (u *underWay) end(wallet, nonce string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.amounts[wallet]
	if of[nonce].copies--; of[nonce].copies == 0 {
		delete(of, nonce)
	}
	if len(of) == 0 {
		delete(u.amounts, wallet)
	}
}
