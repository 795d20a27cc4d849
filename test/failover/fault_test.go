//go:build failover

package failover

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// fault is something that goes wrong and is mended again.
type fault struct {
	name string
	// run breaks something and mends it. It calls broken when the outage can begin.
	run func(n *nemesis, broken func()) error
}

// loseLeader is the fault of the negative control.
const loseLeader = "lose leader behind cut-off standbys"

// faults are all faults. A cut-off neither refuses nor resets connections: packets just disappear.
var faults = []fault{
	{"kill leader node", ofLeader(killLeaderNode)},
	{"kill PostgreSQL", ofLeader(killPostgres)},
	{"kill Parley", killParley},
	{"cut off leader", ofLeader(cutOffLeader)},
	{"cut off etcd", cutOffEtcd},
	{"switchover", ofLeader(switchover)},
	{"stop leader node", ofLeader(stopLeaderNode)},
	{"stop Parley", stopParley},
	{"full WAL volume", ofLeader(fillVolume)},
	{"clock shift", shiftClock},
	{loseLeader, ofLeader(loseLeaderBehindCutOffStandbys)},
}

// nemesis runs faults.
type nemesis struct {
	cluster *cluster
	servers []*server
	chance  *rand.Rand
}

// hold is how long a fault lasts that does not end by itself: long enough for another node to lead.
func (n *nemesis) hold() time.Duration {
	return 30*time.Second + time.Duration(n.chance.IntN(10_000))*time.Millisecond
}

func (n *nemesis) server() *server { return n.servers[n.chance.IntN(len(n.servers))] }

// leader returns the node that leads. On a busy machine it may respond late.
func (n *nemesis) leader() (node int) {
	testkit.Eventually(10*time.Second, func() bool { node = n.cluster.leader(); return node != 0 })
	return node
}

// ofLeader makes a fault of one that needs the node that leads.
func ofLeader(run func(n *nemesis, leader int, broken func()) error) func(*nemesis, func()) error {
	return func(n *nemesis, broken func()) error {
		leader := n.leader()
		if leader == 0 {
			return errors.New("no node leads")
		}
		return run(n, leader, broken)
	}
}

func killLeaderNode(n *nemesis, leader int, broken func()) error {
	broken()
	if err := n.cluster.killNode(leader); err != nil {
		return err
	}
	time.Sleep(n.hold())
	n.cluster.startNode(leader)
	return nil
}

func killPostgres(n *nemesis, leader int, broken func()) error {
	postmaster := n.cluster.postmaster(leader)
	if postmaster == 0 {
		return fmt.Errorf("PostgreSQL of node %d does not run", leader)
	}
	broken()
	return syscall.Kill(postmaster, syscall.SIGKILL)
}

func killParley(n *nemesis, broken func()) error {
	s := n.server()
	broken()
	s.kill()
	time.Sleep(time.Duration(n.chance.IntN(10_000)) * time.Millisecond)
	return s.start(0)
}

func cutOffLeader(n *nemesis, leader int, broken func()) error {
	broken()
	if err := cut(leader); err != nil {
		return err
	}
	time.Sleep(n.hold())
	return heal(leader)
}

// cutOffEtcd stops two of three members, so that no leader can keep its lease.
func cutOffEtcd(n *nemesis, broken func()) error {
	stopped := n.chance.Perm(nodes)[:2]
	broken()
	for _, node := range stopped {
		n.cluster.etcd[node+1].Signal(syscall.SIGSTOP)
	}
	time.Sleep(n.hold())
	for _, node := range stopped {
		n.cluster.etcd[node+1].Signal(syscall.SIGCONT)
	}
	return nil
}

func switchover(n *nemesis, leader int, broken func()) error {
	broken()
	status, text := n.cluster.ask(http.MethodPost, leader, "/switchover", fmt.Sprintf(`{"leader": "n%d"}`, leader))
	if status != http.StatusOK {
		return fmt.Errorf("switchover: %d %s", status, text)
	}
	return nil
}

func stopLeaderNode(n *nemesis, leader int, broken func()) error {
	broken()
	if _, err := signalAll(namespaceOf(leader), syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(n.hold())
	_, err := signalAll(namespaceOf(leader), syscall.SIGCONT)
	return err
}

func stopParley(n *nemesis, broken func()) error {
	s := n.server()
	broken()
	s.pause(5*time.Second + time.Duration(n.chance.IntN(15_000))*time.Millisecond)
	return nil
}

// fillVolume leaves no room for WAL on the leader, which then begins new WAL files until it cannot.
func fillVolume(n *nemesis, leader int, broken func()) error {
	name := filepath.Join(n.cluster.folder(leader), "volume", "full")
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	broken()
	block := make([]byte, 1<<16)
	for err == nil {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	for end := time.Now().Add(n.hold()); time.Now().Before(end); time.Sleep(time.Second) {
		n.cluster.beginWAL(leader)
	}
	return errors.Join(file.Close(), os.Remove(name))
}

// shiftClock starts a server again with a clock that is minutes off.
func shiftClock(n *nemesis, broken func()) error {
	s := n.server()
	shift := time.Duration(1+n.chance.IntN(10)) * time.Minute
	if n.chance.IntN(2) == 0 {
		shift = -shift
	}
	broken()
	s.kill()
	return s.start(shift)
}

// loseLeaderBehindCutOffStandbys takes the leader away after its standbys received nothing for some seconds. With synchronous
// replication nothing is acknowledged in these seconds. With asynchronous replication it is, and then lost. The leader is cut off too,
// because its kernel would still send what the standbys lack.
func loseLeaderBehindCutOffStandbys(n *nemesis, leader int, broken func()) error {
	standbys := n.cluster.standbys()
	broken()
	var failed error
	for _, node := range standbys {
		failed = errors.Join(failed, cut(node))
	}
	time.Sleep(3 * time.Second)
	failed = errors.Join(failed, cut(leader), n.cluster.killNode(leader))
	for _, node := range standbys {
		failed = errors.Join(failed, heal(node))
	}
	time.Sleep(n.hold())
	failed = errors.Join(failed, heal(leader))
	n.cluster.startNode(leader)
	return failed
}

// chosen returns the faults with the names in a list, in its order.
func chosen(list string) ([]fault, error) {
	var found []fault
names:
	for name := range strings.SplitSeq(list, ",") {
		for _, fault := range faults {
			if fault.name == strings.TrimSpace(name) {
				found = append(found, fault)
				continue names
			}
		}
		return nil, fmt.Errorf("there is no fault %q", name)
	}
	return found, nil
}
