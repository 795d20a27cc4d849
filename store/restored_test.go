package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// TestBindRestored: a restored payment is bound to one call, and to none whose payment identifier another payment has.
func TestBindRestored(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	account, identifier := g.agents[0], "identifier"
	lost := store.RestoredPayment{
		PaymentTerms: store.PaymentTerms{Network: "eip155:84532", Asset: "0xa", PayTo: "0xd"}, Payer: "0xpayer", Nonce: "0x1", Transaction: "0xf",
		Amount: 7, At: time.Now().Add(-time.Hour),
	}
	for i, want := range []bool{true, false} {
		if entered, err := g.RestorePayment(ctx, lost); err != nil || entered != want {
			t.Fatalf("restoring %d: %v, %v, want %v", i, entered, err, want)
		}
	}
	restored, err := g.RestoredOfWallet(ctx, "exact", lost.Network, lost.Asset, lost.Payer, lost.Amount)
	if err != nil || restored == nil || !restored.Restored() {
		t.Fatalf("the restored payment: %v, %v", restored, err)
	}
	other := beginning(lost.Payer, account)
	other.PaymentIdentifier = &identifier
	if err := g.BeginSettlement(ctx, other, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	call := store.Redemption{
		Payment: restored.ID, Payer: lost.Payer, Operation: other.Operation, AgentID: &account, Fingerprint: other.Fingerprint,
		SignatureHash: other.SignatureHash, PaymentIdentifier: &identifier,
	}
	if err := g.BindRestored(ctx, call); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("with the identifier of another payment: %v, want ErrStalePayment", err)
	}
	call.PaymentIdentifier = nil
	if err := g.BindRestored(ctx, call); err != nil {
		t.Error(err)
	}
	if err := g.BindRestored(ctx, call); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("bound again: %v, want ErrStalePayment", err)
	}
	record, err := g.PaymentRecord(ctx, restored.ID)
	if err != nil || record == nil || record.AgentID == nil || *record.AgentID != account || record.Operation != other.Operation {
		t.Errorf("the bound payment is %v, %v", record, err)
	}
	if unknown, err := g.PaymentRecord(ctx, uuid.New()); unknown != nil || err != nil {
		t.Errorf("an unknown payment is %v, %v", unknown, err)
	}
}
