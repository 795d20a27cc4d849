package operator

import (
	"math"
	"net/netip"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/server/edge"
)

// Limits are the limits for calls without payment. The defaults equal edge.DefaultLimits.
type Limits struct {
	AddressRate float64 `env:"LIMIT_ADDRESS_RATE" default:"100" placeholder:"N"`
	Connections int     `env:"LIMIT_CONNECTIONS" default:"4096" placeholder:"N"`
}

const (
	// burstFactor allows ten seconds' worth of calls at once: many agents share an address, and ask for many prices before they pay.
	burstFactor = 10
	// callerShare is the part of the rate of an address that one account or wallet has.
	callerShare = 0.2
	// A TAN has 40 bits. Five tries in ten minutes are enough for typing errors, and more where more agents share an address.
	leastWrongTANs      = 5
	addressRatePerWrong = 20
)

// Config converts the limits and the trusted proxies. The error lists all invalid settings.
func (l Limits) Config(trusted []string) (edge.Limits, error) {
	var wrong settings.Wrong
	wrong.Check(l.AddressRate > 0 && l.AddressRate <= math.MaxInt32/burstFactor, "limit-address-rate", l.AddressRate, "a number above 0")
	wrong.Check(l.Connections > 0, "limit-connections", l.Connections, "a number above 0")
	caller := perSecond(l.AddressRate * callerShare)
	config := edge.Limits{Address: perSecond(l.AddressRate), Account: caller, Wallet: caller,
		WrongTANs:   max(leastWrongTANs, int(l.AddressRate/addressRatePerWrong)),
		Connections: l.Connections, ConnectionsPerAddress: min(edge.DefaultLimits().ConnectionsPerAddress, l.Connections)}
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

func perSecond(calls float64) edge.Rate {
	return edge.Rate{PerSecond: calls, Burst: max(1, int(calls*burstFactor))}
}
