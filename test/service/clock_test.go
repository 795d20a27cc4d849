package service

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// shiftedDatabase returns the URL of a database whose clock is ahead of the one of this machine.
func shiftedDatabase(t testing.TB, ahead time.Duration) string {
	t.Helper()
	databaseURL := storetest.URL(t)
	connection, err := pgx.Connect(t.Context(), databaseURL)
	testkit.NoError(t, err)
	defer connection.Close(t.Context())
	if _, err := connection.Exec(t.Context(), fmt.Sprintf(`
		CREATE SCHEMA shifted;
		CREATE FUNCTION shifted.now() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT pg_catalog.now() + interval '%[1]d seconds' $$;
		CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
			SELECT pg_catalog.clock_timestamp() + interval '%[1]d seconds' $$`, int(ahead.Seconds()))); err != nil {
		t.Fatal(err)
	}
	return databaseURL + "&search_path=shifted,public,pg_catalog"
}

// TestClockOfThisMachineIsWrong: the server judges the validity of payments, and tells the time, by the database's clock.
func TestClockOfThisMachineIsWrong(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]time.Duration{"ahead": -5 * time.Minute, "behind": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldOn(t, shiftedDatabase(t, database))
			w.Ledger.Advance(max(database, 0)) // a chain's time does not go back
			now := func() time.Time { return time.Now().Add(database) }
			testkit.NoError(t, w.store.ReadClock(t.Context()))
			alice := w.Wallet(testkit.Dollar)
			request := func(username string, after, before int64) testkit.Reply {
				now := now().Unix()
				payment := w.sign(alice, "/register/request_account", func(p *x402.PaymentPayload) {
					p.Payload.Authorization.ValidAfter = strconv.FormatInt(now+after, 10)
					p.Payload.Authorization.ValidBefore = strconv.FormatInt(now+before, 10)
				})
				return w.call(http.MethodPost, "/register/request_account", `{"requested_username":`+quote(username)+`}`, x402.HeaderPaymentSignature,
					payment)
			}
			valid := request("alice", -1, 60+int64(w.Ledger.Now().Sub(now()).Seconds()))
			valid.Require(t, "a payment that is valid for a minute of the chain's time", 200)
			w.Secret(valid.Field(t, "tan"))
			var left time.Duration
			w.Scan(`SELECT expires_at - shifted.clock_timestamp() FROM registrations`, nil, &left)
			if left < 9*time.Minute || left > 10*time.Minute {
				t.Errorf("the TAN is valid for %s, want ten minutes", left)
			}
			w.Scan(`SELECT lease_until - created_at FROM payments`, nil, &left)
			if left < time.Minute || left > 2*time.Minute {
				t.Errorf("the payment was leased for %s, want less than two minutes", left)
			}
			revenue := w.Revenue()
			request("expired", -3600, -60).WantRefused(t, "a payment that has expired", 402)
			request("early", 60, 3600).WantRefused(t, "a payment that is not valid yet", 402)
			if w.Revenue() != revenue || w.settles.Load() != 1 {
				t.Errorf("the facilitator was asked %d times to settle, want once", w.settles.Load())
			}
			var health struct{ Timestamp float64 }
			testkit.NoError(t, json.Unmarshal(w.call(http.MethodGet, "/health", "").Body, &health))
			if off := health.Timestamp - float64(now().UnixMilli())/1000; math.Abs(off) > 2 {
				t.Errorf("/health is %v seconds ahead of the database", off)
			}
		})
	}
}
