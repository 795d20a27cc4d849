//go:build attack

package attack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/jhttp"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/test/consistency"
	"github.com/parley-chat/parley/x402/evm"
)

// row is what the ledger says about an authorization.
type row struct {
	id, payer, nonce, operation, state, transaction, reason string
	amount                                                  int64
}

func (p *row) paid() bool   { return p != nil && (p.state == "delivered" || p.state == "undeliverable") }
func (p *row) served() bool { return p != nil && p.state == "delivered" }

// spent is an authorization that the chain says is used; cancelled if nothing moved.
type spent struct {
	to, transaction string
	amount          uint64
	cancelled       bool
}

// onChain reads from the chain's endpoint which authorizations are used or cancelled, by payer and nonce.
func (r *randomRun) onChain() map[[2]string]spent {
	r.T.Helper()
	client := jrpc2.NewClient(jhttp.NewChannel(r.proxy.url+"/rpc", nil), nil)
	defer func() { _ = client.Close() }()
	const (
		transfer  = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
		used      = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5"
		cancelled = "0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81"
	)
	var newest evm.Uint64
	testkit.NoError(r.T, client.CallResult(r.T.Context(), "eth_blockNumber", nil, &newest))
	all := map[[2]string]spent{}
	for from := evm.Uint64(0); from <= newest; from += 5000 {
		var events []struct {
			Topics          []evm.Hash
			Data            evm.Bytes
			TransactionHash evm.Hash
		}
		filter := map[string]any{"address": testkit.PlayMoney.Asset, "fromBlock": from, "toBlock": min(from+4999, newest),
			"topics": []any{[]string{transfer, used, cancelled}}}
		testkit.NoError(r.T, client.CallResult(r.T.Context(), "eth_getLogs", []any{filter}, &events))
		for i, e := range events {
			if e.Topics[0] == evm.HexToHash(transfer) {
				continue
			}
			of := [2]string{strings.ToLower(e.Topics[1].Address().Hex()), e.Topics[2].Hex()}
			how := spent{transaction: e.TransactionHash.Hex(), cancelled: e.Topics[0] == evm.HexToHash(cancelled)}
			if !how.cancelled { // its transfer comes right after it
				moved := events[i+1]
				how.to, how.amount = strings.ToLower(moved.Topics[2].Address().Hex()), binary.BigEndian.Uint64(moved.Data[24:])
			}
			if _, twice := all[of]; twice {
				r.offence("the chain has the authorization %v twice", of)
			}
			all[of] = how
		}
	}
	return all
}

// checkBooks compares what the actors saw, the ledger, the chain and the effects.
func (r *randomRun) checkBooks() {
	r.T.Helper()
	chain := r.onChain()
	byNonce := map[string]*payment{}
	for _, p := range r.payments {
		byNonce[p.nonce] = p
	}
	r.EachRow(func(rows pgx.Rows) error {
		var p row
		err := rows.Scan(&p.id, &p.payer, &p.nonce, &p.operation, &p.state, &p.transaction, &p.reason, &p.amount)
		switch known := byNonce[p.nonce]; {
		case known == nil || known.purse.address != p.payer:
			r.offence("the ledger has a payment that nobody made: %+v", p)
		default:
			known.row = &p
		}
		return err
	}, "SELECT id::text, payer, nonce, operation, state, transaction, failure_reason, amount FROM payment_records")
	if kept := r.Count("SELECT count(*) FROM payments WHERE payload IS NOT NULL OR request IS NOT NULL OR key_hash IS NOT NULL"); kept > 0 {
		r.offence("%d closed payments still hold their payload, request or key's hash", kept)
	}
	r.findRedeemed()
	r.checkMoney(chain)
	r.checkChannels(chain)
	r.checkReplies(chain)
	r.checkEffectsOfAll()
	r.checkPlaces()
	r.checkNumbers()
	r.checkKeys()
	r.checkHistories()
}

// checkHistories: what the actors saw can have happened one call after another.
func (r *randomRun) checkHistories() {
	facts, err := consistency.Load(r.T.Context(), r.DatabaseURL, time.Time{})
	testkit.NoError(r.T, err)
	report := &consistency.Report{}
	// The service writes notes by itself, and what the actors read and change is more than the model has.
	report.Check(r.recorder.Partitions(facts, consistency.Scope{}))
	for _, wrong := range report.Wrong() {
		r.offence("%s", wrong)
	}
	r.T.Logf("the histories:\n%s", report)
}

// wrong reports an offence of one payment, with what the logs say of it.
func (r *randomRun) wrong(p *payment, chain map[[2]string]spent, what string, details ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.counted(what) {
		return
	}
	state, lines := "not in the ledger", ""
	if p.row != nil {
		state, lines = fmt.Sprintf("%+v", *p.row), r.logged(p.row.id, p.row.transaction)
	}
	r.T.Errorf("%s: %s %q\n  %s from %s, nonce %s; on the chain %+v; ledger: %s\n  seen: accepted %v, refused %v, refused freely %d times "+
		"of %d, charged %v, cancelled %v; replies %v\n%s",
		p.label, what, details, p.operation.id, p.purse.address, p.nonce, chain[[2]string{p.purse.address, p.nonce}], state,
		p.accepted, p.refused, p.freely, p.sendings, p.charged, p.cancelled, p.replies, lines)
}

// findRedeemed finds the payments that proved a wallet and were never settled: the caller was replied out of an earlier payment
// of that wallet for the same operation, whose settlement the reply named. What they were sent with may be what that payment
// was delivered for.
func (r *randomRun) findRedeemed() {
	byTransaction := map[string]*payment{}
	for _, p := range r.payments {
		if p.row != nil && p.row.transaction != "" {
			byTransaction[p.row.transaction] = p
		}
	}
	for _, p := range r.payments {
		if p.row != nil || !secret[p.operation.path] {
			continue
		}
		other := byTransaction[p.settlement]
		if other != nil && other.purse == p.purse && other.operation.id == p.operation.id {
			p.redeemed = other
		}
		proofs := [2]string{p.purse.address, p.operation.id}
		r.proofs[proofs] = append(r.proofs[proofs], p.requests...)
	}
}

// checkMoney: what moved on the chain is what the ledger says, payment by payment and in sum.
func (r *randomRun) checkMoney(chain map[[2]string]spent) {
	payee := strings.ToLower(devnet.Payee)
	var revenue uint64
	spentBy := map[*purse]uint64{}
	known := map[[2]string]bool{}
	for _, p := range r.payments {
		of := [2]string{p.purse.address, p.nonce}
		known[of] = true
		if p.channel != nil { // see checkChannels
			continue
		}
		how, used := chain[of]
		moved := used && !how.cancelled
		switch {
		case moved != p.row.paid():
			r.wrong(p, chain, "the money moved, or the ledger says that it did, but not both")
		case moved && (how.to != payee || how.amount != uint64(p.row.amount) || how.amount != byID[p.row.operation].price):
			r.wrong(p, chain, "another amount or payee than the operation's")
		case moved && p.row.transaction != "" && p.row.transaction != how.transaction:
			r.wrong(p, chain, "another transaction than on the chain")
		}
		if p.row.paid() {
			revenue += uint64(p.row.amount)
			spentBy[p.purse] += uint64(p.row.amount)
		}
	}
	for of, how := range chain {
		if !known[of] && how.to != strings.ToLower(sink) {
			r.offence("the chain has an authorization that nobody signed: %v %+v", of, how)
		}
	}
	if has := r.Revenue() - r.Ledger.Received(devnet.Payee).Settled; has != revenue {
		r.offence("single payments brought the payee %d, but the ledger says that %d were paid", has, revenue)
	}
	for _, p := range r.purses {
		if has, want := r.Ledger.Balance(p.address), p.minted-p.moved-spentBy[p]-r.locked(p); has != want {
			r.offence("the wallet %s has %d, want %d: it was given %d, %d were moved away, and it paid %d", p.address, has, want, p.minted, p.moved,
				spentBy[p])
		}
	}
}

// checkReplies: what the callers were told is what became of their payments.
func (r *randomRun) checkReplies(chain map[[2]string]spent) {
	for _, p := range r.payments {
		paid := 0
		for _, member := range p.family.payments {
			if member.row.paid() {
				paid++
			}
		}
		served, charged := p.row.served(), p.row.paid() // or another one of its name is
		for _, member := range p.family.payments {
			served = served || member.row.served()
			charged = charged || member.row.paid()
		}
		if p.redeemed != nil { // its caller was replied out of another payment of the same wallet
			served, charged = served || p.redeemed.row.served(), charged || p.redeemed.row.paid()
		}
		// One copy of several may be refused before another one begins, if the caller learns that the others' outcome is another.
		early := p.copies && (p.accepted || p.open)
		switch state := p.row; {
		case p.accepted && !served:
			r.wrong(p, chain, "replied 200, and not delivered")
		case p.charged && !charged:
			r.wrong(p, chain, `replied "charged": true, and not paid`)
		case p.refused && state.paid() && !p.doubleUsed && !early:
			r.wrong(p, chain, "replied 402, and the money moved")
		case p.sendings == 1 && p.freely > 0 && state != nil && state.state != "deposited" && !p.charged:
			r.wrong(p, chain, "refused free of charge, and in the ledger")
		case p.freely > 0 && !p.charged && len(p.requests) == 1 && p.row.served() && !early:
			r.wrong(p, chain, "refused free of charge, and delivered")
		case p.never && (state != nil || r.settles[p.nonce] > 0):
			r.wrong(p, chain, "not good, and settled or in the ledger", r.settles[p.nonce])
		case paid > 1:
			r.wrong(p, chain, "several payments of one identifier were taken", paid)
		case state != nil && slices.Contains([]string{"settling", "unknown"}, state.state):
			r.wrong(p, chain, "still open")
		}
	}
}

// checkNumbers: messages are numbered without gaps, and what is counted is there.
func (r *randomRun) checkNumbers() {
	for what, query := range map[string]string{
		"conversations have gaps in their numbers": testkit.NumberGaps,
		"conversations miscount their members": `SELECT count(*) FROM conversations c
			WHERE member_count <> (SELECT count(*) FROM memberships m WHERE m.conversation_id = c.id AND status = 'member')`,
		"memberships miscount the own messages": `SELECT count(*) FROM memberships m WHERE status = 'member' AND unread_own <>
			(SELECT count(*) FROM messages o WHERE o.conversation_id = m.conversation_id AND o.sender_id = m.agent_id AND o.number > m.read_number)`,
		"memberships have read more than there is": `SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			WHERE read_number > last_number`,
		"pairs have no chat, or chats no pair": `SELECT count(*) FROM private_pairs p FULL JOIN (SELECT id FROM conversations
			WHERE kind = 'private') c ON c.id = p.conversation_id WHERE c.id IS NULL OR p.conversation_id IS NULL`,
		"registrations are claimed by nobody": `SELECT count(*) FROM registrations WHERE claimed_by IS NOT NULL`,
	} {
		if n := r.Count(query); n != 0 {
			r.offence("%d %s", n, what)
		}
	}
}

// checkKeys: every agent whose rotations were replied has the key that it was told last.
func (r *randomRun) checkKeys() {
	hashes := map[string]string{}
	r.EachRow(func(rows pgx.Rows) error {
		var name, hash string
		err := rows.Scan(&name, &hash)
		hashes[name] = hash
		return err
	}, "SELECT username, encode(key_hash, 'hex') FROM agents")
	for _, account := range r.made {
		if account.locked {
			r.offence("the agent %s does not know its key any more", account.name)
		} else if hash := fmt.Sprintf("%x", store.HashKey(account.key)); hashes[account.name] != hash {
			r.offence("the agent %s has another key than it was told", account.name)
		}
	}
}
