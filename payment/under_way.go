package payment

import "sync"

// underWay are the amounts that this server is settling, by wallet and nonce. A wallet that sends more payments at once than it paid lately
// must hold their sum: otherwise one would settle, and each of the others would cost a call to the facilitator.
type underWay struct {
	mu      sync.Mutex
	amounts map[string]map[string]*amountUnderWay
}

type amountUnderWay struct {
	amount uint64
	copies int
}

// begin adds a payment, and returns how many other payments of the wallet there are, and their sum. The caller ends it.
func (u *underWay) begin(wallet, nonce string, amount uint64) (others int, sum uint64, end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.amounts[wallet]
	if of == nil {
		of = map[string]*amountUnderWay{}
		u.amounts[wallet] = of
	}
	for other, one := range of {
		if other != nonce {
			others++
			sum += one.amount
		}
	}
	if of[nonce] == nil {
		of[nonce] = &amountUnderWay{amount: amount}
	}
	of[nonce].copies++
	return others, sum, func() { u.end(wallet, nonce) }
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
