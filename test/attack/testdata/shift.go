package time

import "syscall"

// shift is how many seconds Now is ahead of the clock of the machine. `make attacked` adds this file to Go's package time.
var shift = func() int64 {
	text, _ := syscall.Getenv("PARLEY_CLOCK_SHIFT")
	ahead, _ := ParseDuration(text)
	return int64(ahead / Second)
}()
