// Package consistency records what clients saw of a service and checks with porcupine whether it could have happened one call after
// another. A [Recorder] is the transport of the clients, [Partitions] makes small independent histories of what it recorded, and
// [Report.Check] checks them against a sequential model of Parley. docs/consistency.md describes model and findings.
//
// `make consistency` runs the tests of this package; test/failover and test/attack record and check their clients too.
package consistency
