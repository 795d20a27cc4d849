//go:build attack

package attack

import (
	"fmt"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402/evm"
)

// ownEndpoint restarts the server with a blockchain endpoint that can fail apart from the facilitator.
func (w *alertWorld) ownEndpoint() *proxy {
	w.T.Helper()
	rpc := newProxy(w.T, w.proxy.network)
	w.s.flags = append(w.s.flags, "--rpc-url", rpc.url+"/rpc")
	w.s.restart("")
	return rpc
}

// channelAlertCases are the faults of payment channels and certificates.
var channelAlertCases = map[string]alertCase{
	"ParleyClaimsFail": {run: func(w *alertWorld) {
		p := w.payer(w.alice)
		p.open(w.s, 2)
		w.proxy.breakWith(onSettle(dropBefore))
		w.pass(26 * time.Hour)
		w.fires(nothing)
		w.proxy.mend()
		w.pass(time.Hour) // the pause after a claim that failed; `parley payments claim --all` does not wait for it
		w.s.restart("")
		w.ends(nothing)
	}},
	"ParleyWithdrawalsUnseen": {replace: [2]string{"withdraw_delay_seconds / 8", "withdraw_delay_seconds / 20000"},
		run: func(w *alertWorld) {
			rpc := w.ownEndpoint()
			rpc.close()
			w.fires(nothing)
			rpc.open()
			w.ends(nothing)
		}},
	"ParleyUnclaimedHigh": {
		flags: []string{"--channel-claim-sum", "0.02", "--channel-max-unclaimed", "0.02"},
		run: func(w *alertWorld) {
			w.proxy.breakWith(func(c *call) {
				if testkit.PaymentKind(c.body) == "claim" {
					dropBefore(c)
					return
				}
				pass(c)
			})
			w.payer(w.alice).open(w.s, 3)
			w.fires(nothing)
			w.proxy.mend()
			w.pass(time.Hour)
			w.s.restart("")
			w.ends(nothing)
		}},
	"ParleyAuthorizerKeyMissing": {run: func(w *alertWorld) {
		w.payer(w.alice).open(w.s, 1)
		current := hexKey()
		w.keys(current)
		w.fires(nothing)
		w.keys(current, fmt.Sprintf("%x", evm.FromECDSA(authorizer)))
		w.ends(nothing)
	}},
	"ParleyUnclaimedLost": {run: func(w *alertWorld) {
		p := w.payer(w.alice)
		p.open(w.s, 2)
		w.s.kill() // for longer than the withdraw delay
		w.withdraws(p, testkit.Dollar)
		w.pass(25 * time.Hour)
		w.s.start("")
		w.fires(nothing)
		w.ends(nothing)
	}},
	"ParleyRefundsHang": {run: func(w *alertWorld) {
		p := w.payer(w.alice)
		charged := p.open(w.s, 2)
		rpc := w.ownEndpoint()
		w.s.pay(p.says("withdrawals are known", charged+sendPrice, 0)).Want(w.T, "a voucher", 200)
		rpc.close()
		w.proxy.breakWith(onSettle(dropBefore))
		w.s.pay(p.refund(charged+sendPrice, 0))
		w.fires(nothing)
		w.proxy.mend()
		rpc.open()
		w.pass(time.Hour)
		w.ends(nothing)
	}},
	"ParleyClaimedElsewhere": {replace: [2]string{"process_start_time_seconds < 3600", "process_start_time_seconds < 20"},
		run: func(w *alertWorld) {
			p := w.payer(w.alice)
			charged := p.open(w.s, 1)
			w.restored(func() {
				w.s.pay(p.says("lost, but claimed", charged+sendPrice, 0)).Want(w.T, "a voucher", 200)
				w.s.kill()
				w.pass(25 * time.Hour)
				w.s.start("")
				w.paidOut()
			})
			w.s.pay(p.says("after the restore", charged+2*sendPrice, 0))
			w.fires(nothing)
			w.ends(nothing) // the servers go on from what is claimed
		}},
	"ParleyCertificateExpires": {run: func(w *alertWorld) {
		folder := w.T.TempDir()
		w.s.secure(folder, 13*day)
		w.fires(nothing)
		w.certificate(folder, 90*day) // the server needs no restart
		w.ends(nothing)
	}},
}
