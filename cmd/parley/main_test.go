//go:build !noserver

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402/evm"
)

// TestMain lets the test binary be parley itself: the commands are tested as processes, with real signals.
func TestMain(m *testing.M) {
	if os.Getenv("PARLEY_TEST_AS_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	storetest.Main(m)
}

// ran is a command that has ended.
type ran struct {
	out, errs string
	err       error
}

// invoke runs a command in this process.
func invoke(t *testing.T, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, console.Console{Out: &out, Err: &errs})
	return ran{out.String(), errs.String(), err}
}

// good wants that the command succeeds, and returns its output.
func (r ran) good(t *testing.T) string {
	t.Helper()
	if r.err != nil {
		t.Fatalf("%v\n%s%s", r.err, r.out, r.errs)
	}
	return r.out
}

// itself returns this program as a command.
func itself(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	testkit.NoError(t, err)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PARLEY_TEST_AS_COMMAND=1")
	return cmd
}

// process is a running parley command.
type process struct {
	*testkit.Process
	logs *testkit.Buffer
}

// folder is a temporary one that any user may enter: as root PostgreSQL runs as another user.
func folder(t *testing.T) string {
	t.Helper()
	name, err := storetest.Folder("parley-cmd-test-")
	testkit.NoError(t, err)
	t.Cleanup(func() {
		// PostgreSQL of a process that was killed may still write.
		if !testkit.Eventually(20*time.Second, func() bool { return os.RemoveAll(name) == nil }) {
			t.Errorf("%s cannot be removed", name)
		}
	})
	return name
}

// start runs a command until it is ready.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{logs: &testkit.Buffer{}}
	cmd := itself(context.Background(), t, args...)
	cmd.Env = append(append(cmd.Env, "PARLEY_SERVER_SECRET="+testServerSecret), env...)
	cmd.Stderr = p.logs
	var err error
	p.Process, err = testkit.Launch(cmd)
	testkit.NoError(t, err)
	t.Cleanup(p.Kill)
	if !p.Serves(time.Minute) {
		t.Fatalf("parley %s does not get ready:\n%s", strings.Join(args, " "), p.logs)
	}
	return p
}

// stop ends the command like Ctrl-C and wants it to end well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.Signal(syscall.SIGINT)
	if !p.HasEnded(time.Minute) || p.Err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", p.Err, p.logs)
	}
}

func get(t *testing.T, url string, into any) {
	t.Helper()
	response, err := http.Get(url)
	testkit.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.NoError(t, err)
	if err := json.Unmarshal(body, into); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %v %s", url, response.StatusCode, err, body)
	}
}

// facilitator reads from the published contract where the server's payments go.
func (p *process) facilitator(t *testing.T) string {
	t.Helper()
	var document struct {
		Info struct {
			Protocols []struct{ X402 struct{ Facilitator string } }
		} `json:"x-payment-info"`
	}
	get(t, p.URL+"/openapi.json", &document)
	return document.Info.Protocols[0].X402.Facilitator
}

func (p *process) balance(t *testing.T, address string) string {
	t.Helper()
	var account struct{ Balance string }
	get(t, p.facilitator(t)+"/balances/"+address, &account)
	return account.Balance
}

// agent returns an agent that pays with one of the dev network's wallets.
func (p *process) agent(t *testing.T, account int) *testkit.Agent {
	t.Helper()
	wallet, err := evm.HexToECDSA(strings.TrimPrefix(devnet.Accounts()[account].PrivateKey, "0x"))
	testkit.NoError(t, err)
	return testkit.NewAgent(t, p.URL, wallet, testkit.Sparing, &testkit.Contractual{T: t}, nil)
}

// register creates the account of an agent.
func (p *process) register(t *testing.T, account int, name string) *testkit.Agent {
	t.Helper()
	a := p.agent(t, account)
	a.Register(t, name)
	return a
}

// TestDevSurvivesKill: the start after a kill -9 has the accounts and balances.
func TestDevSurvivesKill(t *testing.T) {
	t.Parallel()
	data := folder(t)
	first := playServer(t, "--data", data)
	alice := first.register(t, 0, "alice")
	payee, wallet := first.balance(t, devnet.Payee), first.balance(t, devnet.Accounts()[0].Address)
	if payee != "1000000" || !strings.Contains(first.logs.String(), devnet.Warning) {
		t.Errorf("the payee has %s, want 1000000; the log must warn of play money:\n%s", payee, first.logs)
	}
	first.Kill()

	second := playServer(t, "--data", data)
	if got := second.balance(t, devnet.Payee); got != payee {
		t.Errorf("after the restart the payee has %s, want %s", got, payee)
	}
	if got := second.balance(t, devnet.Accounts()[0].Address); got != wallet {
		t.Errorf("after the restart alice's wallet has %s, want %s", got, wallet)
	}
	again := second.agent(t, 0)
	again.Key = alice.Key
	own, err := again.GetOwnAgentWithResponse(t.Context())
	testkit.Require200(t, "alice reads her account after the restart", own, err)
	second.stop(t)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	if err := invoke(t, "migrate").err; err == nil || !strings.Contains(err.Error(), "--database-url") {
		t.Errorf("migrate without a database says %q", err)
	}
	url := storetest.URL(t)
	for _, test := range []struct{ option, says string }{
		{"--status", "sql\npending migrations: 0\n"}, {"--dry-run", "pending migrations: 0\n"}, {"--database-url=" + url, "migrations run: 0\n"},
	} {
		if out := invoke(t, "migrate", "--database-url", url, test.option).good(t); !strings.HasSuffix(out, test.says) {
			t.Errorf("migrate %s: %q, want an end with %q", test.option, out, test.says)
		}
	}
}

// TestMigrateDryRun: a dry run on a database without a schema lists all migrations and creates nothing.
func TestMigrateDryRun(t *testing.T) {
	t.Parallel()
	database := storetest.URL(t)
	connection, err := pgx.Connect(t.Context(), database)
	testkit.NoError(t, err)
	defer connection.Close(context.Background())
	const elsewhere = `CREATE SCHEMA empty;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path TO empty', current_database()); END $$`
	_, err = connection.Exec(t.Context(), elsewhere)
	testkit.NoError(t, err)
	out := invoke(t, "migrate", "--dry-run", "--database-url", database).good(t)
	var tables int
	err = connection.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'empty'").Scan(&tables)
	if want := fmt.Sprintf("pending migrations: %d\n", store.SchemaVersion()); err != nil || tables != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("a dry run made %d tables (%v) and printed %q, want the end %q", tables, err, out, want)
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	out := invoke(t, "demo").good(t)
	// What the wallets paid and what the payee holds, both the sum of the specification's prices.
	if strings.Count(out, " 3.781000 ") != 2 {
		t.Errorf("the demo's sum is not there:\n%s", out)
	}
	// One deposit per agent, and the calls that were charged.
	for _, row := range []string{
		`payment channels \(batch-settlement\) +\d+ +0\.\d+ +deposits: 3, claims: \d+`, `one transfer per call \(exact\) +49 +0\.118580 `,
	} {
		if !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("the settlement's cost is not there: %s\n%s", row, out)
		}
	}
}

func TestPortInUseIsToldFirst(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer taken.Close()
	err = invoke(t, "dev", "--listen", taken.Addr().String(), "--data", folder(t)).err
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("dev on a port in use: %v", err)
	}
}
