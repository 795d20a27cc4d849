//go:build failover

// Package failover contains the failover tests (`make failover`). Three nodes run etcd, Patroni and PostgreSQL with synchronous
// replication, each in a network namespace of its own. Two `parley serve` processes use them, one through HAProxy and one through a
// database URL with several hosts. Clients pay for messages with both schemes and send the same payment again until they know its
// outcome, while a seeded nemesis kills, stops and cuts off one thing after another. At the end the answers that the clients got, the
// database and the chain are compared (check_test.go).
//
// The tests need Linux and root. Everything they start runs in namespaces that they make and remove.
package failover
