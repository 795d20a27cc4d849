//go:build !noserver

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
)

type wrongSetting struct {
	args string // of serve, separated by blanks; override goodSettings
	want string // the sentence, or several
}

var wrongValues = []wrongSetting{
	{"--payee=bob", "--payee (PARLEY_PAYEE) is bob; use the address that receives the payments: 0x and 40 hex digits"},
	{"--payee=", "--payee (PARLEY_PAYEE) is missing; use the address that receives the payments: 0x and 40 hex digits"},
	{"--payee=0x0000000000000000000000000000000000000000", "--payee (PARLEY_PAYEE) is 0x0000000000000000000000000000000000000000; " +
		"use the address that receives the payments, not zero: what is sent there is lost"},
	{"--payee=0xBcd4042DE499D14e55001CcbB24a551F3b954097",
		"--payee (PARLEY_PAYEE) is 0xBcd4042DE499D14e55001CcbB24a551F3b954097; use it as the wallet or " +
			"the explorer shows it: the checksum in its upper and lower case letters (EIP-55) does not fit, so a digit is wrong"},
	{"--database-url=", "--database-url (PARLEY_DATABASE_URL) is missing; use the form postgres://user:password@host:5432/database"},
	{"--database-url=mysql://hunter2@db",
		"--database-url (PARLEY_DATABASE_URL) is (hidden); use the form postgres://user:password@host:5432/database"},
	{"--facilitator-url=facilitator.example", "--facilitator-url (PARLEY_FACILITATOR_URL) is facilitator.example; " +
		"use the URL of the x402 facilitator, starting with https:// or http://"},
	{"--facilitator-url=http://user:hunter2@facilitator.example --facilitator-key=hunter2",
		"--facilitator-url (PARLEY_FACILITATOR_URL) is (hidden); use the URL of the x402 facilitator, without a user and a password"},
	{"--base-url=https://user:hunter2@parley.example",
		"--base-url (PARLEY_BASE_URL) is (hidden); use the public URL of the server, such as https://parley.example"},
	{"--facilitator-url=http://facilitator.example --facilitator-key=hunter2", "--facilitator-url (PARLEY_FACILITATOR_URL) is " +
		"http://facilitator.example; use https, because the server authenticates to the facilitator"},
	{
		"--database-url=file:/nowhere",
		"--database-url (PARLEY_DATABASE_URL) is file:/nowhere; use a file that can be read, not one with: no such file or directory",
	},
	{"--database-url=file:/dev/null", "--database-url (PARLEY_DATABASE_URL) is file:/dev/null; use a file that is not empty"},
	{"--facilitator-key=hunter2:hunter2", "--facilitator-key (PARLEY_FACILITATOR_KEY) is (hidden); " +
		"use ID:SECRET, the secret as base64 of 64 bytes (Ed25519), or as an EC private key for P-256 in PEM"},
	{
		"--facilitator-key=hunter2é",
		"--facilitator-key (PARLEY_FACILITATOR_KEY) is (hidden); use a token without spaces and control characters, or ID:SECRET",
	},
	{"--network=eip155:1", "--network (PARLEY_NETWORK) is eip155:1; " +
		"use it with the token's contract, EIP-712 name and version, such as eip155:1/0x…/USDC/2"},
	{"--limit-connections=1.5", "--limit-connections (PARLEY_LIMIT_CONNECTIONS) is 1.5; use a whole number"},
	{
		"--rpc-url=ws://hunter2",
		"--rpc-url (PARLEY_RPC_URL) is (hidden); use a JSON-RPC endpoint of the blockchain, starting with https:// or http://",
	},
	{"--network=base", "--network (PARLEY_NETWORK) is base; use the chain's CAIP-2 id, such as eip155:8453"},
	{
		"--listen=garbage",
		"--listen (PARLEY_LISTEN) is garbage; use host and port such as 127.0.0.1:8402, or :8402 for all addresses of the machine",
	},
	{"--listen=127.0.0.1:99999",
		"--listen (PARLEY_LISTEN) is 127.0.0.1:99999; use host and port such as 127.0.0.1:8402, or :8402 for all addresses of the machine"},
	{"--admin-listen=8404",
		"--admin-listen (PARLEY_ADMIN_LISTEN) is 8404; use host and port such as 127.0.0.1:8402, or :8402 for all addresses of the machine"},
	{"--listen=0.0.0.0:80", "--base-url (PARLEY_BASE_URL) is missing; use the public URL of the server, such as https://parley.example"},
	{
		"--base-url=parley.example",
		"--base-url (PARLEY_BASE_URL) is parley.example; use the public URL of the server, such as https://parley.example",
	},
	{"--drain-time=5", "--drain-time (PARLEY_DRAIN_TIME) is 5; use a duration such as 30s, 10m or 24h"},
	{"--drain-time=-1s", "--drain-time (PARLEY_DRAIN_TIME) is -1s; use 0s or longer"},
	{"--trusted-proxies=10.0.0.0/8,proxy",
		"--trusted-proxies (PARLEY_TRUSTED_PROXIES) is proxy; use addresses or networks such as 10.0.0.0/8, separated by commas"},
	{"--limit-address-rate=-1", "--limit-address-rate (PARLEY_LIMIT_ADDRESS_RATE) is -1; use a number above 0"},
	{"--limit-address-rate=many", "--limit-address-rate (PARLEY_LIMIT_ADDRESS_RATE) is many; use a number"},
	{"--log-level=loud", "--log-level (PARLEY_LOG_LEVEL) is loud; use one of debug, info, warn, error"},
	{
		"--retention-messages=23h",
		"--retention-messages (PARLEY_RETENTION_MESSAGES) is 23h; use 24h or longer, or 0s to keep everything for ever",
	},
	{"--authorizer-key=file:GOOD --channel-withdraw-delay=1m",
		"--channel-withdraw-delay (PARLEY_CHANNEL_WITHDRAW_DELAY) is 1m; use whole seconds, from 15m to 720h"},
	{"--server-secret=", "--server-secret (PARLEY_SERVER_SECRET) is missing; use 64 hex digits: openssl rand -hex 32"},
	{"--server-secret=file:HUNTER2", "--server-secret (PARLEY_SERVER_SECRET) is file:HUNTER2; use a secret of 64 hex digits on each line"},
	{"--server-secret=file:ZEROS", "--server-secret (PARLEY_SERVER_SECRET) is file:ZEROS; use a secret of 64 hex digits on each line"},
	{"--config=/nowhere", "--config (PARLEY_CONFIG) is /nowhere; use a file that can be read, not one with: no such file or directory"},
	{
		"--tls-key-file=/key.pem",
		"--tls-certificate-file (PARLEY_TLS_CERTIFICATE_FILE) is missing; use the file with the certificate of --tls-key-file",
	},
	{"--tls-certificate-file=/nowhere --tls-key-file=/nowhere",
		"--tls-certificate-file (PARLEY_TLS_CERTIFICATE_FILE) is /nowhere; use a certificate and its key in PEM, " +
			"not files with: read the certificate: no such file or directory"},
	{"--tls-certificate-file=/dev/null --tls-key-file=/dev/null --tls-domain=parley.example", `2 settings are wrong:
  --tls-domain (PARLEY_TLS_DOMAIN) is parley.example; use either it or --tls-certificate-file
  --tls-certificate-file (PARLEY_TLS_CERTIFICATE_FILE) is /dev/null; ` +
		"use a certificate and its key in PEM, not files with: tls: failed to find any PEM data in certificate input"},
	{
		"--tls-domain=*.example",
		"--tls-domain (PARLEY_TLS_DOMAIN) is *.example; use domains such as parley.example, without scheme, port and *",
	},
	{"--tls-domain=parley.example --base-url=http://parley.example",
		"--base-url (PARLEY_BASE_URL) is http://parley.example; use https://, because the server encrypts"},
	{
		"--tls-http-listen=:80",
		"--tls-http-listen (PARLEY_TLS_HTTP_LISTEN) is :80; use it with --tls-domain or --tls-certificate-file, or not at all",
	},
	{"--payee=bob --limit-connections=0 --drain-time=x", `3 settings are wrong:
  --drain-time (PARLEY_DRAIN_TIME) is x; use a duration such as 30s, 10m or 24h
  --payee (PARLEY_PAYEE) is bob; use the address that receives the payments: 0x and 40 hex digits
  --limit-connections (PARLEY_LIMIT_CONNECTIONS) is 0; use a number above 0`},
}

const notYAML = "--config (PARLEY_CONFIG) is FILE; use a YAML file with lines such as payee: 0x…, not one with: "

// wrongFiles are wrong configuration files.
var wrongFiles = []struct{ content, want string }{
	{"drain-time:\t5s\n\tx", notYAML + "line 2: found a tab character that violates indentation"},
	{"drain-time: 5s\n---\ndrain-time: 6s", notYAML + "more than one document"},
	{"payee", notYAML + "no mapping, or a key twice"},
	{"drain-time: 5s\ndrain-time: 6s", notYAML + "no mapping, or a key twice"},
	{"database-url: *hunter2", notYAML + "an unknown alias: a value that begins with * needs quotes"},
	{"# comment\npaye: hunter2", "FILE: paye is not a setting; did you mean payee?"},
	{"limit_address_rate: 5", "FILE: limit_address_rate is not a setting; did you mean limit-address-rate?"},
	{"pool-of-sharks: 5", "FILE: pool-of-sharks is not a setting; remove it: parley serve --help lists the settings"},
	{"config: other.yaml", "FILE: config is not a setting; remove it: parley serve --help lists the settings"},
	{"\ndrain-time: {a: 5s}", "FILE:2: drain-time is not a simple value; use a text, a number or a list"},
	{"trusted-proxies: [[1]]", "FILE:1: trusted-proxies is not a simple value; use a text, a number or a list"},
	{"drain-time: [5s]", "--drain-time (PARLEY_DRAIN_TIME) is a list in FILE; use one value"},
}

// wrongVariables are wrong environment variables.
var wrongVariables = []struct{ name, value, want string }{
	{
		"PARLEY_LIMIT_ADDRESS_RATES",
		"hunter2",
		"PARLEY_LIMIT_ADDRESS_RATES in the environment is not a setting; did you mean PARLEY_LIMIT_ADDRESS_RATE?",
	},
	{"PARLEY_LIMIT_CONNECTIONS", "\n", `--limit-connections (PARLEY_LIMIT_CONNECTIONS) is "\n"; use a whole number`},
	{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:hunter2@collector.example",
		"OTEL_EXPORTER_OTLP_ENDPOINT in the environment is no URL of an OTLP collector, or has a user and a password; " +
			"use one such as http://127.0.0.1:4318"},
	{"OTEL_TRACES_SAMPLER_ARG", "10", "OTEL_TRACES_SAMPLER_ARG in the environment is 10; use a number from 0 to 1"},
}

// refused runs serve with good settings and further ones, and wants a sentence.
func refused(t *testing.T, further []string, want string) {
	t.Helper()
	args := slices.Clone(goodSettings)
	for _, arg := range further {
		name, _, _ := strings.Cut(arg, "=")
		args = slices.DeleteFunc(args, func(good string) bool { return strings.HasPrefix(good, name+"=") })
	}
	var errs bytes.Buffer
	err := invoke(t, slices.Concat([]string{"serve"}, args, further)...).err
	if err == nil || err.Error() != want {
		t.Errorf("serve %s says\n%v\nwant\n%s", further, err, want)
	} else if status := agent.Report(&errs, err); status != 2 || strings.Contains(errs.String(), "hunter2") {
		t.Errorf("serve %s ends with %d and\n%s", further, status, &errs)
	}
}

// TestWrongSettings: each wrong setting is one sentence with the setting, its value and a remedy. No secret is shown.
func TestWrongSettings(t *testing.T) {
	places := strings.NewReplacer("GOOD", writeFile(t, devnet.Accounts()[2].PrivateKey), "HUNTER2",
		writeFile(t, strings.Repeat("5a", 32)+"\nhunter2"), "ZEROS", writeFile(t, strings.Repeat("0", 64)))
	for _, test := range wrongValues {
		refused(t, strings.Fields(places.Replace(test.args)), places.Replace(test.want))
	}
	for _, test := range wrongFiles {
		file := writeFile(t, test.content)
		refused(t, []string{"--config=" + file}, strings.ReplaceAll(test.want, "FILE", file))
	}
	for _, test := range wrongVariables {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(test.name, test.value)
			refused(t, nil, test.want)
		})
	}
}
