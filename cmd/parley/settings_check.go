//go:build !noserver

package main

import (
	"context"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402/evm"
)

var addressForm = regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`)

// settingsDatabase are the settings of commands that use the database of a server.
type settingsDatabase struct {
	File        settingsFile `embed:""`
	DatabaseURL string       `env:"PARLEY_DATABASE_URL" secret:"" placeholder:"URL" help:"The server's PostgreSQL database, as a postgres:// URL."`
}

func (d settingsDatabase) open(ctx context.Context) (*store.Store, error) {
	var wrong wrongSettings
	wrong.databaseURL(d.DatabaseURL)
	if wrong != nil {
		return nil, &usageError{wrong}
	}
	return store.Open(ctx, d.DatabaseURL, store.Limits{})
}

// address checks an address. what says whose address is meant.
func (w *wrongSettings) address(setting, value, what string) {
	digits := strings.TrimPrefix(value, "0x")
	if !addressForm.MatchString(value) {
		w.check(false, setting, value, what+": 0x and 40 hex digits")
		return
	}
	w.check(strings.Trim(digits, "0") != "", setting, value, what+", not zero: what is sent there is lost")
	oneCase := digits == strings.ToLower(digits) || digits == strings.ToUpper(digits)
	w.check(oneCase || evm.HexToAddress(value).Hex() == value, setting, value,
		"it as the wallet or the explorer shows it: the checksum in its upper and lower case letters (EIP-55) does not fit, so a digit is wrong")
}

// http checks a URL that is no secret: it is shown, and published. So it can have no user and password, and with them it is hidden.
func (w *wrongSettings) http(setting, value, what string) {
	if hasUser(value) {
		w.check(false, setting, hidden(value), what+", without a user and a password")
		return
	}
	w.check(isHTTP(value), setting, value, what+", starting with https:// or http://")
}

// hasUser reports whether a text is a URL that may contain a password, also if it cannot be parsed.
func hasUser(text string) bool {
	_, rest, found := strings.Cut(text, "://")
	return found && strings.Contains(rest, "@")
}

// withoutUser hides a URL that may contain a password.
func withoutUser(text string) string {
	if hasUser(text) {
		return hidden(text)
	}
	return text
}

func (w *wrongSettings) databaseURL(value string) {
	w.check(value != "" && store.CheckURL(value) == nil, "database-url", hidden(value), "the form postgres://user:password@host:5432/database")
}

// rpcURL checks the endpoint of the blockchain. Its URL often contains a key.
func (w *wrongSettings) rpcURL(value string) {
	w.check(isHTTP(value), "rpc-url", hidden(value), "a JSON-RPC endpoint of the blockchain, starting with https:// or http://")
}

// listen checks an address to listen on.
func (w *wrongSettings) listen(setting, value string) {
	_, port, err := net.SplitHostPort(value)
	number, portErr := strconv.ParseUint(port, 10, 16)
	w.check(err == nil && portErr == nil && number <= 65535, setting, value,
		"host and port such as 127.0.0.1:8402, or :8402 for all addresses of the machine")
}

func isHTTP(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Hostname() != ""
}

func onLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && isLoopback(host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
