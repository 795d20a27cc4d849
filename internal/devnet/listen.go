package devnet

import (
	"fmt"
	"net"
)

// Listen listens on a TCP address of this machine's loopback interface, such as "127.0.0.1:0" or "localhost:0". It
// returns an error for any other address, including an address without a host, which would mean all interfaces. The dev
// network gives its keys to every caller.
func Listen(address string) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the dev network cannot listen on %q: %w", address, err)
	}
	if !resolved.IP.IsLoopback() {
		return nil, fmt.Errorf("the dev network does not listen on %q: it is for this machine only, so give a loopback "+
			"address such as 127.0.0.1:0", address)
	}
	// Listen on the resolved address and not on the name: the name may resolve to another address the next time.
	return net.ListenTCP("tcp", resolved)
}
