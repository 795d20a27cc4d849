//go:build !linux

package store

import (
	"syscall"
	"time"
)

// giveUpAfter does nothing: only Linux has TCP_USER_TIMEOUT. Deadlines of the calls end them here.
func giveUpAfter(time.Duration) func(network, address string, connection syscall.RawConn) error {
	return nil
}
