//go:build failover

package failover

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// Each node has a network namespace. The hub namespace has the bridge that joins them, the Parley servers, the clients and the payment
// network.
const (
	nodes   = 3
	hub     = "10.77.0.254"
	network = "10.77.0.0/24"
)

func addressOf(node int) string { return "10.77.0." + strconv.Itoa(node) }

var addresses = []string{addressOf(1), addressOf(2), addressOf(3)}

// namespaceOf is the namespace of a node.
func namespaceOf(node int) string { return prefix + strconv.Itoa(node) }

func makeNetwork(prefix string) error {
	commands := fmt.Sprintf(`netns add %[1]shub
		-n %[1]shub link set lo up
		-n %[1]shub link add br0 type bridge
		-n %[1]shub addr add %[2]s/24 dev br0
		-n %[1]shub link set br0 up`, prefix, hub)
	for node := 1; node <= nodes; node++ {
		commands += fmt.Sprintf(`
			netns add %[1]s%[2]d
			-n %[1]s%[2]d link set lo up
			link add v%[2]d netns %[1]shub type veth peer name eth0 netns %[1]s%[2]d
			-n %[1]shub link set v%[2]d master br0 up
			-n %[1]s%[2]d addr add %[3]s/24 dev eth0
			-n %[1]s%[2]d link set eth0 up`, prefix, node, addressOf(node))
	}
	for line := range strings.Lines(commands) {
		if err := execute("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// removeNetwork ends all processes in the namespaces and removes the namespaces.
func removeNetwork(prefix string) error {
	var failed error
	for _, name := range []string{prefix + "1", prefix + "2", prefix + "3", prefix + "hub"} {
		err := killAll(name)
		failed = errors.Join(failed, err, execute("ip", "netns", "del", name))
	}
	return failed
}

// signalAll sends a signal to every process in a namespace, and returns how many there are.
func signalAll(namespace string, signal syscall.Signal) (int, error) {
	output, err := exec.Command("ip", "netns", "pids", namespace).Output()
	if err != nil {
		return 0, fmt.Errorf("list the processes in %s: %w", namespace, err)
	}
	all := strings.Fields(string(output))
	for _, text := range all {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		_ = syscall.Kill(pid, signal) // it may have ended
	}
	return len(all), nil
}

// killAll kills every process in a namespace and waits until there is none.
func killAll(namespace string) (err error) {
	left := 0
	testkit.Eventually(10*time.Second, func() bool {
		left, err = signalAll(namespace, syscall.SIGKILL)
		return err != nil || left == 0
	})
	if left > 0 {
		return fmt.Errorf("%d processes in %s do not end", left, namespace)
	}
	return err
}

// cut makes a node unreachable, without a sign to those that are connected with it.
func cut(node int) error { return setLink(node, "down") }

// heal makes a node reachable again.
func heal(node int) error { return setLink(node, "up") }

func setLink(node int, state string) error {
	return execute("ip", "-n", prefix+"hub", "link", "set", "v"+strconv.Itoa(node), state)
}
