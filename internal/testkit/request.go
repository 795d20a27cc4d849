package testkit

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// Request sends a request as it is; headers are pairs of name and value. A body is JSON unless a header says something else. The
// error is a connection that was refused or lost, perhaps after a part of the response.
func Request(ctx context.Context, through *http.Client, method, url, body string, headers ...string) (Reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	if _, given := request.Header["Content-Type"]; body != "" && !given {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := through.Do(request)
	if err != nil {
		return Reply{}, err
	}
	defer response.Body.Close()
	r := Reply{Status: response.StatusCode, Header: response.Header}
	r.Body, err = io.ReadAll(response.Body)
	if r.Status != http.StatusOK {
		_ = json.Unmarshal(r.Body, &r.Problem) // what is no JSON has no code
	}
	return r, err
}

// HangUp closes the connection of a request.
func HangUp(w http.ResponseWriter) { CutOff(w, "") }

// CutOff closes the connection of a request after a part of a response.
func CutOff(w http.ResponseWriter, part string) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(connection, part)
	_ = connection.Close()
}
