package testkit

import "syscall"

// endWithParent lets the kernel kill a process when the test binary ends, also after a panic or kill -9.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
