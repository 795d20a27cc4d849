//go:build contract

// Package contract reads openapi.yaml with the libraries that people use.
package contract

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestContractReaders: each library finds openapi.yaml valid, and reads from it what the server does. PYTHON is an interpreter with
// requirements.txt.
func TestContractReaders(t *testing.T) {
	t.Parallel()
	want := read(t, parley.Contract)
	const file = "../../../openapi.yaml"
	found := 0
	for _, program := range [][]string{{"node", "readers.mjs", file}, {os.Getenv("PYTHON"), "readers.py", file}} {
		command := exec.CommandContext(t.Context(), program[0], program[1:]...)
		command.Stderr = os.Stderr
		output, err := command.Output()
		if err != nil {
			t.Errorf("%s does not read the contract: %v", program[1], err)
			continue
		}
		var readings map[string]json.RawMessage
		testkit.NoError(t, json.Unmarshal(output, &readings))
		for library, reading := range readings {
			found++
			if diff := cmp.Diff(want, read(t, reading)); diff != "" {
				t.Errorf("%s reads another contract (-server +library):\n%s", library, diff)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d libraries have read the contract, want 5", found)
	}
}

// read returns the document that the server reads from a text in YAML or JSON.
func read(t *testing.T, text []byte) (document any) {
	t.Helper()
	contract, err := openapi3.NewLoader().LoadFromData(text)
	testkit.NoError(t, err)
	raw, err := json.Marshal(contract)
	testkit.NoError(t, err)
	testkit.NoError(t, json.Unmarshal(raw, &document))
	return document
}
