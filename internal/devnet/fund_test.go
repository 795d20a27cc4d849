package devnet

import (
	"net/http"
	"strings"
	"testing"
)

// TestFund: a new wallet gets play money; other bodies change nothing.
func TestFund(t *testing.T) {
	t.Parallel()
	_, ledger, client := serve(t, "")
	address := "0x00000000000000000000000000000000000000Aa"
	for _, want := range []string{`{"address":"` + address + `","balance":"10000000"}`, `{"address":"` + address + `","balance":"20000000"}`} {
		if status, body := call(t, http.MethodPost, client.BaseURL+"/fund", `{"address":"`+address+`"}`); status != http.StatusOK ||
			body != want {
			t.Errorf("POST /fund: status %d, %s, want %s", status, body, want)
		}
	}
	good := `{"address":"` + address + `"}`
	for _, bad := range []string{"", "{}", `{"address":"0x12"}`, `{"address":5}`, good + "{}", strings.Repeat(" ", maxBodyBytes) + good} {
		if status, body := call(t, http.MethodPost, client.BaseURL+"/fund", bad); status != http.StatusBadRequest {
			t.Errorf("POST /fund %.60q: status %d, %s, want 400", bad, status, body)
		}
	}
	if ledger.Balance(address) != 2*fundAmount {
		t.Errorf("the balance is %d", ledger.Balance(address))
	}
}
