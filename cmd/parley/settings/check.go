package settings

import (
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402/evm"
)

var AddressForm = regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`)

// Address checks an address. what says whose address is meant.
func (w *Wrong) Address(setting, value, what string) {
	digits := strings.TrimPrefix(value, "0x")
	if !AddressForm.MatchString(value) {
		w.Check(false, setting, value, what+": 0x and 40 hex digits")
		return
	}
	w.Check(strings.Trim(digits, "0") != "", setting, value, what+", not zero: what is sent there is lost")
	oneCase := digits == strings.ToLower(digits) || digits == strings.ToUpper(digits)
	w.Check(oneCase || evm.HexToAddress(value).Hex() == value, setting, value,
		"it as the wallet or the explorer shows it: the checksum in its upper and lower case letters (EIP-55) does not fit, so a digit is wrong")
}

// HTTP checks a URL that is no secret: it is shown, and published. So it can have no user and password, and with them it is hidden.
func (w *Wrong) HTTP(setting, value, what string) {
	if HasUser(value) {
		w.Check(false, setting, hidden, what+", without a user and a password")
		return
	}
	w.Check(IsHTTP(value), setting, value, what+", starting with https:// or http://")
}

// HasUser reports whether a text is a URL that may contain a password, also if it cannot be parsed.
func HasUser(text string) bool {
	_, rest, found := strings.Cut(text, "://")
	return found && strings.Contains(rest, "@")
}

// WithoutUser hides a URL that may contain a password.
func WithoutUser(text string) string {
	if HasUser(text) {
		return hidden
	}
	return text
}

func (w *Wrong) DatabaseURL(secret Secret) {
	w.Check(secret.Value != "" && store.CheckURL(secret.Value) == nil, "database-url", secret,
		"the form postgres://user:password@host:5432/database")
}

// RPCURL checks the endpoint of the blockchain. Its URL often contains a key.
func (w *Wrong) RPCURL(secret Secret) {
	w.Check(IsHTTP(secret.Value), "rpc-url", secret, "a JSON-RPC endpoint of the blockchain, starting with https:// or http://")
}

// Listen checks an address to listen on.
func (w *Wrong) Listen(setting, value string) {
	_, port, err := net.SplitHostPort(value)
	number, portErr := strconv.ParseUint(port, 10, 16)
	w.Check(err == nil && portErr == nil && number <= 65535, setting, value,
		"host and port such as 127.0.0.1:8402, or :8402 for all addresses of the machine")
}

func IsHTTP(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https") && parsed.Hostname() != ""
}

func OnLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && IsLoopback(host)
}

func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
