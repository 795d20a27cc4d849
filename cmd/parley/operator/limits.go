package operator

import (
	"math"
	"net/netip"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server"
)

// Limits are the limits for calls without payment. The defaults are those of server.DefaultLimits.
type Limits struct {
	AddressRate  float64 `env:"LIMIT_ADDRESS_RATE" default:"100" placeholder:"N" help:"Unpaid calls per second from one client address (an IPv4 address or an IPv6 /64) (${default}). Paid calls are not counted."`
	AddressBurst int     `env:"LIMIT_ADDRESS_BURST" default:"1000" placeholder:"N" help:"Burst of these calls (${default})."`
	AccountRate  float64 `env:"LIMIT_ACCOUNT_RATE" default:"20" placeholder:"N" help:"Calls per second of one account that end without a charge (${default})."`
	AccountBurst int     `env:"LIMIT_ACCOUNT_BURST" default:"200" placeholder:"N" help:"Burst of these calls (${default})."`
	WalletRate   float64 `env:"LIMIT_WALLET_RATE" default:"20" placeholder:"N" help:"Calls per second with payments by one wallet that end without a charge (${default})."`
	WalletBurst  int     `env:"LIMIT_WALLET_BURST" default:"200" placeholder:"N" help:"Burst of these calls (${default})."`
	WrongTANs    int     `name:"wrong-tans" env:"LIMIT_WRONG_TANS" default:"5" placeholder:"N" help:"Wrong TANs per ten minutes of one wallet, and of one client address (${default})."`

	Connections           int `env:"LIMIT_CONNECTIONS" default:"4096" placeholder:"N" help:"Open connections (${default}). At the limit a new connection replaces an idle one."`
	ConnectionsPerAddress int `env:"LIMIT_CONNECTIONS_PER_ADDRESS" default:"1024" placeholder:"N" help:"Open connections per client address (${default})."`
}

// Config converts the limits and the trusted proxies. The error lists all invalid settings.
func (l Limits) Config(trusted []string) (server.Limits, error) {
	var wrong settings.Wrong
	config := server.Limits{
		Address:   server.Rate{PerSecond: l.AddressRate, Burst: l.AddressBurst},
		Account:   server.Rate{PerSecond: l.AccountRate, Burst: l.AccountBurst},
		Wallet:    server.Rate{PerSecond: l.WalletRate, Burst: l.WalletBurst},
		WrongTANs: l.WrongTANs, Connections: l.Connections, ConnectionsPerAddress: l.ConnectionsPerAddress,
	}
	for _, limit := range []struct {
		name string
		rate server.Rate
	}{{"address", config.Address}, {"account", config.Account}, {"wallet", config.Wallet}} {
		wrong.Check(limit.rate.PerSecond > 0 && limit.rate.PerSecond <= math.MaxInt32, "limit-"+limit.name+"-rate", limit.rate.PerSecond, "a number above 0")
		wrong.Check(limit.rate.Burst > 0, "limit-"+limit.name+"-burst", limit.rate.Burst, "a number above 0")
	}
	wrong.Check(l.WrongTANs > 0, "limit-wrong-tans", l.WrongTANs, "a number above 0")
	wrong.Check(l.Connections > 0, "limit-connections", l.Connections, "a number above 0")
	wrong.Check(l.ConnectionsPerAddress > 0, "limit-connections-per-address", l.ConnectionsPerAddress, "a number above 0")
	for _, text := range trusted {
		proxy, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); err != nil && addressErr == nil {
			proxy, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		wrong.Check(err == nil, "trusted-proxies", text, "addresses or networks such as 10.0.0.0/8, separated by commas")
		config.TrustedProxies = append(config.TrustedProxies, proxy.Masked())
	}
	return config, wrong.Err()
}
