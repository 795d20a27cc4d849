package testkit

import (
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

// CheckSecrets fails the test if an output contains a secret.
func (s *Secrets) CheckSecrets(t testing.TB, name, output string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range s.texts {
		if strings.Contains(output, secret) {
			t.Errorf("%s contains a secret (%.6s…)", name, secret)
		}
	}
}
