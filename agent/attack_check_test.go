//go:build unix

package agent_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(childFolder); folder != "" {
		if err := runChild(folder, os.Getenv(childKey), os.Getenv(childGroup)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	storetest.Main(m)
}

// accountPrice is what the username and the account cost.
const accountPrice = 1_000_000

// newAttack returns an attack on an agent with a daily limit, in atomic units, beside what its registration cost.
func newAttack(t *testing.T, limit uint64, settings ...func(*server.Config)) *attack {
	t.Helper()
	w := newWorld(t, settings...)
	key := w.Wallet(10_000 * testkit.Dollar)
	x := &attack{world: w, t: t, key: fmt.Sprintf("%x", evm.FromECDSA(key))}
	of := wallet{x402.NewKeySigner(key), t.TempDir()}
	x.folder = of.folder
	a := w.registerAs(of, "alice")
	created := call(t, a, "createGroupChat", map[string]any{"name": "all"})
	x.group = field(t, created, "chat_id")
	testkit.NoError(t, a.Ledger().SetLimit(t.Context(), spent(t, a)+limit))
	w.Answer(x.serve)
	return x
}

// signatures are the payments that a server was sent: whatever it said, it can take them.
type signatures struct {
	mu       sync.Mutex
	transfer map[string]string // amounts by nonce
	voucher  map[string]uint64 // the highest by channel
	deposit  map[string]string // amounts by nonce
}

func (s *signatures) note(payment string) {
	decoded, err := x402.DecodePayment(payment)
	exact, _ := decoded.(*x402.PaymentPayload)
	batch, _ := decoded.(*x402.BatchPayment)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transfer == nil {
		s.transfer, s.voucher, s.deposit = map[string]string{}, map[string]uint64{}, map[string]string{}
	}
	if exact != nil {
		s.transfer[exact.Payload.Authorization.Nonce] = exact.Payload.Authorization.Value
		return
	}
	if voucher := batch.Payload.Voucher; voucher.ChannelID != "" {
		amount, _ := strconv.ParseUint(voucher.MaxClaimableAmount, 10, 64) // 0 if a client is wrong
		s.voucher[voucher.ChannelID] = max(s.voucher[voucher.ChannelID], amount)
	}
	if deposit := batch.Payload.Deposit; deposit != nil {
		s.deposit[deposit.Authorization.ERC3009.Salt] = deposit.Amount
	}
}

// sum returns what all payments are worth, and the deposits.
func (s *signatures) sum(t *testing.T) (payable, deposits uint64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	parse := func(amount string) uint64 {
		parsed, err := strconv.ParseUint(amount, 10, 64)
		if err != nil {
			t.Error(err)
		}
		return parsed
	}
	for _, amount := range s.transfer {
		payable += parse(amount)
	}
	for _, amount := range s.voucher {
		payable += amount
	}
	for _, amount := range s.deposit {
		deposits += parse(amount)
	}
	return payable, deposits
}

// check compares what the calls' replies said with the database, the chain and the stored responses.
func (x *attack) check(done map[string]bool, before uint64) {
	t := x.t
	t.Helper()
	a := x.open(wallet{mustSigner(t, x.key), x.folder})
	today, err := a.Ledger().Today(t.Context())
	testkit.NoError(t, err)
	most := today.Limit + accountPrice // which is paid in addition
	if x.charged() > most {
		t.Errorf("%d was paid, the limit is %d", x.charged(), most)
	}
	payable, deposits := x.signed.sum(t)
	if payable > most || deposits > most {
		t.Errorf("what was signed is worth %d, and the deposits are %d; the limit is %d", payable, deposits, most)
	}
	t.Logf("charged %d, signed %d, deposits %d, limit %d", x.charged(), payable, deposits, most)
	if open, err := a.Resume(t.Context()); err != nil || open != 0 {
		t.Errorf("%d calls are open, %v", open, err)
	}
	there := map[string]int{}
	x.Connect(func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, "SELECT content FROM messages")
		if err != nil {
			return err
		}
		contents, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, content := range contents {
			there[content]++
		}
		return err
	})
	paid := (x.charged() - before) / attackPrice
	if messages := uint64(len(there)); paid != messages { //nolint:gosec // not negative
		t.Errorf("%d messages were paid, %d are there", paid, messages)
	}
	for content, times := range there {
		if times != 1 {
			t.Errorf("%s is there %d times", content, times)
		}
	}
	kept, err := a.Responses(t.Context(), "sendGroupMessage")
	if err != nil {
		t.Error(err)
	}
	for content := range done {
		if there[content] != 1 {
			t.Errorf("%s was done and is there %d times", content, there[content])
		}
	}
	if len(kept) < len(done) {
		t.Errorf("%d responses to messages are kept, %d calls were done", len(kept), len(done))
	}
}

func mustSigner(t *testing.T, key string) x402.Signer {
	t.Helper()
	signer, err := x402.ParseKeySigner(key)
	testkit.NoError(t, err)
	return signer
}
