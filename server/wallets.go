package server

import "sync"

// wallets is a stand-in until the rate limits come.
type wallets struct{ all sync.Map }

func (w *wallets) settled(wallet string) { w.all.Store(wallet, true) }
func (w *wallets) settledLately(wallet string) bool {
	_, ok := w.all.Load(wallet)
	return ok
}
