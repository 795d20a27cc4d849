package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
)

// Reply is a response that was read. Its zero value is none.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
	Problem
}

// Problem is what the tests look at in an error body.
type Problem struct {
	Code    string
	Message string
	Charged bool
	Details []client.ErrorDetail
}

func (r Reply) String() string {
	if r.Status == 0 {
		return "no reply"
	}
	return fmt.Sprintf("%d %.2000s", r.Status, r.Body)
}

// Text returns a member of the body, which is a JSON object; "" if there is none.
func (r Reply) Text(member string) string {
	var object map[string]any
	_ = json.Unmarshal(r.Body, &object)
	text, _ := object[member].(string)
	return text
}

// Field returns a member of the body of a 200.
func (r Reply) Field(t testing.TB, member string) string {
	t.Helper()
	text := r.Text(member)
	if r.Status != http.StatusOK || text == "" {
		t.Fatalf("no %s in %v", member, r)
	}
	return text
}

// Want checks the status of a reply, and its error code if one is given. what says what was done.
func (r Reply) Want(t testing.TB, what string, status int, code ...string) {
	t.Helper()
	if problem := r.differs(status, code); problem != "" {
		t.Errorf("%s: %v, %s", what, r, problem)
	}
	// charged is absent exactly if the outcome is unknown.
	if unknown := r.Code == "payment_unknown" || r.Status == http.StatusInternalServerError ||
		r.Code == "payment_in_progress" && strings.HasPrefix(r.Message, "this payment "); r.Status >= http.StatusBadRequest && r.Code != "" &&
		bytes.Contains(r.Body, []byte(`"charged":`)) == unknown {
		t.Errorf("%s: %v says whether it is charged, or does not, wrongly", what, r)
	}
}

// WantRefused is Want of a refusal, which must not be charged.
func (r Reply) WantRefused(t testing.TB, what string, status int, code ...string) {
	t.Helper()
	r.Want(t, what, status, code...)
	if r.Charged {
		t.Errorf("%s: %v, want it not charged", what, r)
	}
}

// Require is Want that ends the test.
func (r Reply) Require(t testing.TB, what string, status int, code ...string) {
	t.Helper()
	if problem := r.differs(status, code); problem != "" {
		t.Fatalf("%s: %v, %s", what, r, problem)
	}
}

// differs tells what was wanted instead of the reply, "" if it is what was wanted.
func (r Reply) differs(status int, code []string) string {
	if r.Status == status && (len(code) == 0 || slices.Contains(code, r.Code)) {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("want %d %s", status, strings.Join(code, " or ")))
}

// Require200 ends the test if a call of the generated client did not return 200.
func Require200(t testing.TB, what string, response interface{ StatusCode() int }, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if response.StatusCode() != http.StatusOK {
		t.Fatalf("%s: %s, want 200", what, reflect.Indirect(reflect.ValueOf(response)).FieldByName("Body"))
	}
}
