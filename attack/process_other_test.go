//go:build attack && !linux

package attack

import "syscall"

// endWithParent cannot be had here: a server whose test binary was killed must be ended by hand.
func endWithParent(*syscall.SysProcAttr) {}
