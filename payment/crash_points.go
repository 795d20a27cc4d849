//go:build crashpoints

package payment

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// crashAt is what PARLEY_CRASH says: the name of a point, and the number of the passing that ends the process ("begun:3").
var crashAt, crashAfter = func() (string, int64) {
	name, count, counted := strings.Cut(os.Getenv("PARLEY_CRASH"), ":")
	if number, err := strconv.ParseInt(count, 10, 64); counted && err == nil {
		return name, number
	}
	return name, 1
}()

var passed atomic.Int64

// Crash ends the process with SIGKILL, as a machine that loses power would, if it is the point that was named.
func Crash(point string) {
	if point == crashAt && passed.Add(1) == crashAfter {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // not one instruction further
	}
}
