// Package restore holds the restore drill (`make restore-drill`): it follows the commands of docs/disaster.md,
// on a PostgreSQL of its own, under paid load, and checks that nothing that was acknowledged is lost, doubled or charged twice.
package restore
