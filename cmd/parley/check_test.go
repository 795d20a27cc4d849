//go:build !noserver

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// findings are the output of parley check --json.
type findings []struct{ State, What, Found, Remedy string }

func (f findings) count(state string) (n int) {
	for _, one := range f {
		if one.State == state {
			n++
		}
	}
	return n
}

// checked runs parley check and returns its findings.
func checked(t *testing.T, args ...string) (findings, error) {
	t.Helper()
	ran := invoke(t, append([]string{"check", "--json"}, args...)...)
	var result struct{ Findings findings }
	if decoded := json.Unmarshal([]byte(ran.out), &result); decoded != nil {
		t.Fatalf("check %v: %v, %v\n%s", args, decoded, ran.err, ran.out)
	}
	return result.Findings, ran.err
}

// TestCheckIsGreen: with a complete installation parley check finds nothing, before the server runs only that it does not.
func TestCheckIsGreen(t *testing.T) {
	t.Parallel()
	migrating, serving := withRoles(t)
	invoke(t, "migrate", "--database-url", migrating).good(t)
	key, responses := "file:"+writeFile(t, strings.Repeat("1", 64)), "file:"+writeFile(t, strings.Repeat("2", 64))
	settings, _ := goodWorld(t)
	settings = append(settings, "--database-url", "file:"+writeFile(t, serving), "--authorizer-key", key,
		"--admin-listen", testkit.FreeAddress(t), "--server-secret", responses)
	found, err := checked(t, settings...)
	if err != nil || found.count("warning") != 1 || !strings.Contains(found.text(), "is not served yet") {
		t.Errorf("before the start: %v\n%s", err, found.text())
	}
	start(t, nil, append([]string{"serve"}, settings...)...)
	found, err = checked(t, settings...)
	if err != nil || found.count("ok") != len(found) || len(found) < 16 {
		t.Errorf("while the server runs: %v\n%s", err, found.text())
	}
	if out := invoke(t, append([]string{"check"}, settings...)...).good(t); !strings.Contains(out, " ok, 0 warnings, 0 failed\n") {
		t.Errorf("the table:\n%s", out)
	}
	// With other settings the same server is noticed.
	found, err = checked(t, append(settings, "--payee", devnet.Accounts()[5].Address)...)
	if err != nil || !strings.Contains(found.text(), "warning base URL: the server there has other settings: --payee "+devnet.Payee) {
		t.Errorf("with another payee: %v\n%s", err, found.text())
	}
}

func (f findings) text() string {
	var text strings.Builder
	for _, one := range f {
		text.WriteString(one.State + " " + one.What + ": " + one.Found + "; " + one.Remedy + "\n")
	}
	return text.String()
}

// wantFinding runs parley check on otherwise good settings and wants a finding with a remedy.
func wantFinding(t *testing.T, settings []string, want string, further ...string) {
	t.Helper()
	found, err := checked(t, append(settings, further...)...)
	if (err != nil) != strings.HasPrefix(want, "failed") {
		t.Errorf("check %v: %v\n%s", further, err, found.text())
	}
	for _, one := range found {
		if strings.HasPrefix(one.State+" "+one.What+": "+one.Found, want) {
			if one.Remedy == "" {
				t.Errorf("check %v: %s has no remedy", further, want)
			}
			return
		}
	}
	t.Errorf("check %v does not find %q:\n%s", further, want, found.text())
}

// goodWorld starts a payment network and returns settings that are good but for the superuser and the server that does not run.
func goodWorld(t *testing.T) (settings []string, network string) {
	t.Helper()
	play := playNetwork(t)
	return []string{"--database-url", storetest.URL(t), "--payee", devnet.Payee, "--network", x402.NetworkBaseSepolia,
			"--facilitator-url", play.URL, "--rpc-url", play.URL + "/rpc", "--listen", testkit.FreeAddress(t), "--server-secret", testServerSecret},
		play.URL
}

// TestCheckDatabase: each fault of a database is told with a remedy.
func TestCheckDatabase(t *testing.T) {
	t.Parallel()
	settings, _ := goodWorld(t)
	wantFinding(t, settings, "warning role: postgres is a superuser")
	wantFinding(t, settings, "failed database: it does not respond: ", "--database-url", "postgres://127.0.0.1:1/none?connect_timeout=2")
	wantFinding(t, settings, "failed settings: --database-url (PARLEY_DATABASE_URL) is (hidden)", "--database-url", "mysql://x")
	for statements, want := range map[string]string{
		"DROP SCHEMA public CASCADE; CREATE SCHEMA public": "failed schema: older than this program",
		"UPDATE schema_compat SET oldest = 999999":         "failed schema: too new for this program",
		"DROP EXTENSION btree_gin CASCADE":                 "failed extensions: btree_gin missing"} {
		url := storetest.URL(t)
		testkit.NoError(t, execute(url, statements))
		wantFinding(t, settings, want, "--database-url", url)
	}
	readOnly := storetest.URL(t)
	wantFinding(t, settings, "failed database: it is read-only", "--database-url", readOnly+"&default_transaction_read_only=on")
	migrating, serving := withRolesOn(t, storetest.URL(t), "")
	testkit.NoError(t, execute(migrating, "CREATE TABLE later (id bigint); REVOKE DELETE ON later FROM "+roleOf(serving)))
	wantFinding(t, settings, "failed role: "+roleOf(serving)+" may not read and write later", "--database-url", serving)
	for options, want := range map[string]string{
		"ENCODING 'LATIN1' LOCALE 'C'": "failed encoding: LATIN1",
		"ENCODING 'UTF8' LOCALE 'C'":   "failed encoding: UTF8, but LC_CTYPE is not for UTF-8",
	} {
		url := emptyDatabase(t, options)
		wantFinding(t, settings, want, "--database-url", url)
		if err := invoke(t, "migrate", "--database-url", url).err; err == nil ||
			!strings.Contains(err.Error(), "CREATE DATABASE parley TEMPLATE") {
			t.Errorf("migrate with %s: %v, want how to create the database", options, err)
		}
	}
}

// TestCheckChain: each fault of the facilitator, the endpoint, the token and the payee is told with a remedy.
func TestCheckChain(t *testing.T) {
	t.Parallel()
	settings, network := goodWorld(t)
	key := strings.Repeat("1", 64)
	wantFinding(t, settings, "failed facilitator: it does not tell what it supports", "--facilitator-url", "http://127.0.0.1:1")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kinds":[{"x402Version":2,"scheme":"exact","network":"eip155:84532"}]}`)
	}))
	t.Cleanup(other.Close)
	wantFinding(t, settings, "warning facilitator: it does not settle batch-settlement on eip155:84532",
		"--facilitator-url", other.URL, "--authorizer-key", key)
	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(closed.Close)
	wantFinding(t, settings, "failed facilitator: it asks for another authentication", "--facilitator-url", closed.URL)
	wantFinding(t, settings, "failed facilitator: it does not settle exact on eip155:8453", "--network", x402.NetworkBase)
	wantFinding(t, settings, "failed endpoint: it does not respond", "--rpc-url", "http://127.0.0.1:1")
	wantFinding(t, settings, "failed endpoint: the endpoint serves chain 84532, not eip155:8453", "--network", x402.NetworkBase)
	err := invoke(t, append(append([]string{"serve"}, settings...), "--network", x402.NetworkBase)...).err
	if err == nil || !strings.Contains(err.Error(), "serves chain 84532, not eip155:8453; correct --rpc-url (PARLEY_RPC_URL) or --network") {
		t.Errorf("serve on another chain: %v", err)
	}
	wantFinding(t, settings, "failed token: "+devnet.Accounts()[0].Address+" is not a contract", "--network",
		x402.NetworkBaseSepolia+"/"+devnet.Accounts()[0].Address+"/USDC/2")
	wantFinding(t, settings, "failed payee: it is the contract of the token", "--payee", "0x036CbD53842c5426634e7929541eC2318f3dCF7e")
	for method, test := range map[string]struct {
		result string
		want   string
	}{
		"eth_getBlockByNumber": {`{"number":"0x1","timestamp":"0x5f5e100"}`, "failed blocks: the newest block is "},
		"eth_getCode":          {`"0x00"`, "warning payee: " + devnet.Payee + " is a contract"},
		"eth_call": {`"0x` + strings.Repeat("0", 62) + "20" + strings.Repeat("0", 63) + "3" + "466f6f" + strings.Repeat("0", 58) + `"`,
			`failed token: its EIP-712 name and version are "Foo" and "Foo", not "USDC" and "2"`},
	} {
		endpoint := endpointWith(t, network, func(body []byte) string {
			var call struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal(body, &call); err != nil || call.Method != method {
				return ""
			}
			return `{"jsonrpc":"2.0","id":` + string(call.ID) + `,"result":` + test.result + `}`
		})
		wantFinding(t, settings, test.want, "--rpc-url", endpoint)
	}
}

// endpointWith returns a JSON-RPC endpoint whose response to a request is that of a function, or if that is "" that of the play-money
// network.
func endpointWith(t *testing.T, network string, respond func(body []byte) string) string {
	t.Helper()
	return inFrontOf(t, network, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if text := respond(body); text != "" {
			_, _ = io.WriteString(w, text)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		pass.ServeHTTP(w, r)
	}).URL + "/rpc"
}

// TestCheckAddresses: what is wrong with addresses, files and the base URL is told with a remedy.
func TestCheckAddresses(t *testing.T) {
	t.Parallel()
	settings, network := goodWorld(t)
	key := writeFile(t, strings.Repeat("1", 64))
	testkit.NoError(t, os.Chmod(key, 0o644)) //nolint:gosec // the test's fault
	wantFinding(t, settings, "warning secrets: "+key+" can be read by every user", "--authorizer-key", "file:"+key)
	wantFinding(t, settings, "failed settings: --server-secret (PARLEY_SERVER_SECRET) is missing", "--server-secret", "")
	wantFinding(t, settings, "failed settings: --authorizer-key (PARLEY_AUTHORIZER_KEY) is file:/nowhere", "--authorizer-key", "file:/nowhere")
	config := writeFile(t, "database-url: "+settings[1])
	testkit.NoError(t, os.Chmod(config, 0o644)) //nolint:gosec // the test's fault
	wantFinding(t, settings[2:], "warning secrets: "+config+" can be read by every user", "--config", config)
	wantFinding(t, settings, "warning base URL: http://127.0.0.1:")
	wantFinding(t, settings, "failed base URL: http://127.0.0.1", "--base-url", network)
	wantFinding(t, settings, "failed base URL: https://", "--base-url", strings.Replace(network, "http", "https", 1))
	wantFinding(t, settings, "warning base URL: it is not encrypted", "--base-url", "http://0.0.0.0:1")
	wantFinding(t, settings, "failed base URL: https://parley.invalid cannot be reached", "--base-url", "https://parley.invalid")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"openapi":"3.0.0"}`)
	}))
	t.Cleanup(other.Close)
	wantFinding(t, settings, "failed base URL: another service responds", "--base-url", other.URL)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	wantFinding(t, settings, "warning --listen: "+taken.Addr().String()+" is in use", "--listen", taken.Addr().String(), "--base-url",
		"http://127.0.0.1:1")
	wantFinding(t, settings, "failed --admin-listen: ", "--admin-listen", "192.0.2.1:8404")
}
