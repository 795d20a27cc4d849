package devnet

import (
	"net"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		listener, err := Listen(address)
		if err != nil {
			t.Errorf("listen on %s: %v", address, err)
			continue
		}
		if got := listener.Addr().(*net.TCPAddr).IP; !got.IsLoopback() {
			t.Errorf("listening on %s is listening on %s", address, got)
		}
		_ = listener.Close()
	}
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "10.0.0.1:0", "[2001:db8::1]:0"} {
		listener, err := Listen(address)
		if err == nil {
			_ = listener.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "this machine only") {
			t.Errorf("listening on %s says %v, want a refusal that gives the reason", address, err)
		}
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:none"} {
		if listener, err := Listen(address); err == nil {
			_ = listener.Close()
			t.Errorf("listening on %q succeeds, want an error", address)
		}
	}
}
