package store

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter makes the kernel close a connection whose peer acknowledges nothing for that long. Without it a cut-off peer is
// noticed after minutes.
func giveUpAfter(silence time.Duration) func(network, address string, connection syscall.RawConn) error {
	return func(network, _ string, connection syscall.RawConn) error {
		if network == "unix" {
			return nil
		}
		var failed error
		err := connection.Control(func(descriptor uintptr) {
			failed = unix.SetsockoptInt(int(descriptor), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
		})
		if err != nil {
			return err
		}
		return failed
	}
}
