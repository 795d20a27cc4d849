package devnet

import (
	"fmt"
	"net"
)

// Listen opens a TCP address on this machine's loopback, such as "127.0.0.1:0" or "localhost:0". Every other address,
// one without a host included (that would be all interfaces), is refused with an error that says so: the dev network
// gives its keys to whoever asks.
func Listen(address string) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the dev network cannot listen on %q: %w", address, err)
	}
	if !resolved.IP.IsLoopback() {
		return nil, fmt.Errorf("the dev network does not listen on %q: it is for this machine only, so give a loopback "+
			"address such as 127.0.0.1:0", address)
	}
	// The resolved address, not the name: a name may resolve otherwise the next time.
	return net.ListenTCP("tcp", resolved)
}
