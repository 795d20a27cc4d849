package testkit

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// Secrets are texts that no output may contain: API keys, TANs, payments, messages.
type Secrets struct {
	mu    sync.Mutex
	texts []string
}

// Secret adds texts.
func (s *Secrets) Secret(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, texts...)
}

// Known returns the secrets so far.
func (s *Secrets) Known() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.texts)
}

// CheckSecrets fails the test if an output contains a secret.
func (s *Secrets) CheckSecrets(t testing.TB, name, output string) {
	t.Helper()
	for _, secret := range s.Known() {
		if strings.Contains(output, secret) {
			t.Errorf("%s contains a secret (%.6s…)", name, secret)
		}
	}
}
