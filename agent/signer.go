package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// signTime is how long an external signer may take. It may wait for a person who presses a button.
const signTime = time.Minute

// maxSignature is longer than what a signer prints.
const maxSignature = 1 << 10

// CommandSigner asks a program for signatures, so that this process never has the key. The program gets the typed data of EIP-712
// as JSON on its standard input, as eth_signTypedData_v4 takes it, and prints the signature: 0x and 130 hex digits.
type CommandSigner struct {
	// Command is run by the shell.
	Command string
	// Wallet is the address of its key.
	Wallet string
}

// Address implements [x402.Signer].
func (s CommandSigner) Address() string { return s.Wallet }

// SignTypedData implements [x402.Signer].
func (s CommandSigner) SignTypedData(ctx context.Context, data x402.TypedData) (string, error) {
	input, err := json.Marshal(data)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	cmd, output := Shell(ctx, s.Command), &signature{}
	cmd.Stdin, cmd.Stdout, cmd.WaitDelay = bytes.NewReader(input), output, time.Second
	err = cmd.Run()
	switch failed, ok := errors.AsType[*exec.ExitError](err); {
	case output.tooLong:
		return "", errors.New("the signer printed more than a signature")
	case ctx.Err() != nil:
		return "", fmt.Errorf("the signer did not respond within %s", signTime)
	case ok: // its messages are not shown: they may quote a key
		return "", fmt.Errorf("the signer failed: %s", failed.ProcessState)
	case err != nil:
		return "", fmt.Errorf("run the signer: %w", err)
	}
	return strings.TrimSpace(output.text.String()), nil
}

// signature is the output of a signer. The program ends when it prints more.
type signature struct {
	text    bytes.Buffer
	tooLong bool
}

func (s *signature) Write(part []byte) (int, error) {
	if s.tooLong = s.text.Len()+len(part) > maxSignature; s.tooLong {
		return 0, errors.New("too long")
	}
	return s.text.Write(part)
}
