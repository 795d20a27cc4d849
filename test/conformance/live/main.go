// Command live runs a program beside a fresh `parley dev`, and exits with its code.
//
//	go run ./test/conformance/live bin/parley node program.mjs
//
// The program's environment has PARLEY_URL, the server; PARLEY_FACILITATOR, the play-money network, whose GET /accounts lists wallets
// with their private keys and whose GET /balances/{address} returns a balance; and PARLEY_PAY_TO, the payee.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: live PARLEY PROGRAM [ARGUMENT...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3:])
	stop()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, parley, program string, arguments []string) (err error) {
	data, err := os.MkdirTemp("", "parley-live-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if err := os.Chmod(data, 0o755); err != nil { // as root, PostgreSQL runs as another user, who must be able to pass
		return err
	}
	server := exec.CommandContext(ctx, parley, "dev", "--listen=127.0.0.1:0", "--facilitator-listen=127.0.0.1:0", "--data="+data)
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = 30 * time.Second
	var log bytes.Buffer
	server.Stderr = &log
	output, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if stopped := server.Wait(); err != nil || stopped != nil {
			fmt.Fprintln(os.Stderr, "the server's log, without the lines for calls:")
			for line := range bytes.Lines(log.Bytes()) {
				if !bytes.Contains(line, []byte(`"level":"INFO","msg":"request"`)) {
					_, _ = os.Stderr.Write(line)
				}
			}
			err = errors.Join(err, stopped)
		}
	}()
	ready, err := bufio.NewReader(output).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(ready), "ready ")
	if err != nil || !ok {
		return fmt.Errorf("parley dev did not get ready: %q, %w", ready, err)
	}
	facilitator, payTo, err := network(ctx, url)
	if err != nil {
		return err
	}
	beside := exec.CommandContext(ctx, program, arguments...)
	beside.Stdin, beside.Stdout, beside.Stderr = os.Stdin, os.Stdout, os.Stderr
	beside.Env = append(os.Environ(), "PARLEY_URL="+url, "PARLEY_FACILITATOR="+facilitator, "PARLEY_PAY_TO="+payTo)
	return beside.Run()
}

// network reads the facilitator and the payee from the served contract.
func network(ctx context.Context, url string) (facilitator, payTo string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/openapi.json", nil)
	if err != nil {
		return "", "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	var contract struct {
		PaymentInfo struct {
			Protocols []struct {
				X402 struct{ Facilitator, PayTo string }
			}
		} `json:"x-payment-info"`
	}
	if err := json.NewDecoder(response.Body).Decode(&contract); err != nil {
		return "", "", fmt.Errorf("read the contract: %w", err)
	}
	for _, protocol := range contract.PaymentInfo.Protocols {
		return protocol.X402.Facilitator, protocol.X402.PayTo, nil
	}
	return "", "", errors.New("the contract does not say who is paid")
}
