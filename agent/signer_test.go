//go:build unix

package agent_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// signerKey tells this test's program to be an external signer.
const signerKey = "AGENT_TEST_SIGNER_KEY"

// runSigner signs the typed data on standard input.
func runSigner(digits string) error {
	key, err := evm.HexToECDSA(digits)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	signature, err := testkit.SignTypedData(key, text)
	fmt.Println(signature)
	return err
}

// TestCommandSigner: a program signs, and what goes wrong in it is an error that does not show what it printed.
func TestCommandSigner(t *testing.T) {
	t.Parallel()
	key := testkit.NewKey()
	program := signerKey + "=" + fmt.Sprintf("%x", evm.FromECDSA(key)) + " '" + os.Args[0] + "'"
	offer := testkit.PlayMoney.Requirements(5000, testkit.Address(testkit.NewKey()), 60)
	signer := agent.CommandSigner{Command: program, Wallet: testkit.Address(key)}
	if _, err := x402.Sign(t.Context(), signer, offer, nil, nil, time.Now()); err != nil {
		t.Errorf("the program's signature: %v", err)
	}
	for name, command := range map[string]string{
		"another key":  signerKey + "=" + fmt.Sprintf("%x", evm.FromECDSA(testkit.NewKey())) + " '" + os.Args[0] + "'",
		"a failure":    "echo the-secret-key >&2; exit 3",
		"no signature": "echo the-secret-key",
		"too much":     "yes the-secret-key | head -c 5000",
		"no end":       "exec yes the-secret-key",
		"no program":   "/does/not/exist the-secret-key",
	} {
		signer.Command = command
		if _, err := x402.Sign(t.Context(), signer, offer, nil, nil, time.Now()); err == nil || strings.Contains(err.Error(), "the-secret-key") {
			t.Errorf("%s: %v, want an error without the output", name, err)
		}
	}
}

// TestHangingSigner: a signer that does not respond uses nothing of the day.
func TestHangingSigner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, of := w.register("alice")
	_, before, _, err := a.Ledger().Limits(t.Context())
	testkit.NoError(t, err)
	hanging := w.open(wallet{agent.CommandSigner{Command: "exec sleep 30", Wallet: of.signer.Address()}, of.folder})
	if _, err := hanging.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{Patience: time.Second}); err == nil {
		t.Error("a call without a signature succeeded")
	}
	if _, after, _, err := a.Ledger().Limits(t.Context()); after != before || err != nil {
		t.Errorf("%+v are left, %v; want %+v", after, err, before)
	}
}
