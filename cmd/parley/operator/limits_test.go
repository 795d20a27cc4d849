package operator

import (
	"net/netip"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
)

// TestLimitSettings: serve's limits are by default those of every server (and so of dev), and each setting sets one.
func TestLimitSettings(t *testing.T) {
	limits := func(args ...string) edge.Limits {
		t.Helper()
		var settings Serve
		parser, err := kong.New(&settings)
		if err == nil {
			_, err = parser.Parse(args)
		}
		testkit.NoError(t, err)
		if retention, err := settings.Retention.config(); err != nil || retention != (store.Retention{}) {
			t.Errorf("without settings data is removed: %+v (%v)", retention, err)
		}
		limits, err := settings.Limits.Config(settings.TrustedProxies)
		testkit.NoError(t, err)
		return limits
	}
	prefixes := cmpopts.EquateComparable(netip.Prefix{})
	if diff := cmp.Diff(edge.DefaultLimits(), limits(), prefixes); diff != "" {
		t.Errorf("the limits without settings (-server's +serve's):\n%s", diff)
	}
	t.Setenv("PARLEY_LIMIT_ADDRESS_RATE", "7.5")
	t.Setenv("PARLEY_TRUSTED_PROXIES", "10.1.2.3/8,fd00::1")
	want := edge.Limits{
		Address: edge.Rate{PerSecond: 7.5,
			Burst: 75}, Account: edge.Rate{PerSecond: 1.5, Burst: 15}, Wallet: edge.Rate{PerSecond: 1.5, Burst: 15},
		WrongTANs: 5, Connections: 7, ConnectionsPerAddress: 7,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::1/128")},
	}
	got := limits("--limit-connections=7")
	if diff := cmp.Diff(want, got, prefixes); diff != "" {
		t.Errorf("the limits with settings (-want +got):\n%s", diff)
	}
}
