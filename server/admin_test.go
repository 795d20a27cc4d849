package server_test

import (
	"strings"
	"testing"
)

// TestProfiles: the admin listener has profiles, without the command line, whose flags can contain secrets.
func TestProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/debug/pprof/": "200 ", "/debug/pprof/heap?debug=1": "200 heap profile", "/debug/pprof/goroutine?debug=1": "200 goroutine profile",
		"/debug/pprof/cmdline": "404 ",
	} {
		if got := w.admin(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s returns %.60q, want %q", path, got, want)
		}
	}
}
