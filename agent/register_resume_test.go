package agent_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// The prices of the two steps to an account, and of showing it.
const reservePrice, createPrice, showPrice = 10_000, 990_000, 1000

// TestRegisterResumes: wherever a registration is interrupted, and if its TAN expires meanwhile, the same command makes the account in the
// end, and pays for each step once. Only what the server's rules take is lost: the price of a username whose TAN has expired.
func TestRegisterResumes(t *testing.T) {
	t.Parallel()
	const request, create, show = "/register/request_account", "/register/create_account", "/agent/me"
	for name, of := range map[string]struct {
		path    string // of the call that is interrupted
		served  bool   // the server gets it, and the response is lost
		expires bool   // the TAN expires before the next run
		name    string // for the next run, if it is another one
		cost    uint64
	}{
		"before the username":              {request, false, false, "", reservePrice + createPrice + showPrice},
		"username, response lost":          {request, true, false, "", reservePrice + createPrice + showPrice},
		"username, response lost, expired": {request, true, true, "", 2*reservePrice + createPrice + showPrice},
		"before the account":               {create, false, false, "", reservePrice + createPrice + showPrice},
		"before the account, expired":      {create, false, true, "", 2*reservePrice + createPrice + showPrice},
		"account, response lost":           {create, true, false, "", reservePrice + createPrice + showPrice},
		"account, response lost, expired":  {create, true, true, "alice2", 2*reservePrice + 2*createPrice + showPrice},
		"before showing it":                {show, false, true, "", reservePrice + createPrice + showPrice},
		"shown, response lost":             {show, true, true, "", reservePrice + createPrice + showPrice},
	} {
		for scheme, settings := range map[string][]func(*server.Config){"single payments": nil, "payment channel": {withChannels}} {
			t.Run(name+" ("+scheme+")", func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, settings...)
				mine := w.wallet()
				a := w.agreed(mine)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
					if r.URL.Path != of.path || r.Header.Get(x402.HeaderPaymentSignature) == "" {
						next.ServeHTTP(rw, r)
						return
					}
					if of.served {
						next.ServeHTTP(httptest.NewRecorder(), r)
					}
					stop()
					testkit.HangUp(rw)
				})
				if _, err := a.Register(ctx, "alice", ""); err == nil {
					t.Fatal("the registration was not interrupted")
				}
				a.Close()
				w.Answer(nil)
				if of.expires {
					w.Exec("UPDATE registrations SET expires_at = now()")
					w.Exec("UPDATE payments SET created_at = created_at - interval '11 minutes', updated_at = updated_at - interval '11 minutes'")
					mine.later(t, 11*time.Minute)
				}
				again, username := w.open(mine), "alice"
				_, err := again.Register(t.Context(), username, "")
				refused, ok := errors.AsType[*agent.Failure](err)
				if ok && refused.Code == string(client.ErrorCodeUsernameTaken) && of.name != "" { // the key of the first account is lost
					username = of.name
				}
				if ok && !isOwned(err) {
					_, err = again.Register(t.Context(), username, "")
				}
				if isOwned(err) {
					return // the server has taken the first payment, and another wallet is needed
				}
				testkit.NoError(t, err)
				if paid := w.charged(); paid != of.cost {
					t.Errorf("%d was paid, want %d", paid, of.cost)
				}
			})
		}
	}
}

// later makes the calls of a wallet older.
func (of wallet) later(t *testing.T, by time.Duration) {
	t.Helper()
	path := filepath.Join(of.folder, "wallets", strings.ToLower(of.signer.Address()), "wallet.db")
	db, err := sql.Open("sqlite", path)
	testkit.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE calls SET at = at - ?", by.Microseconds())
	testkit.NoError(t, errors.Join(err, db.Close()))
}
