//go:build attack

// Package attack holds no program, only the attack and fault suite (`make attack`): what the payment gate must stand,
// shown on real `parley serve` processes that are killed, a real PostgreSQL, and a facilitator behind a proxy that
// drops, delays, cuts and lies. After each case the books are checked from outside: the payee's balance on the play
// network, the payments table, and the effects that the payments bought (world.check).
//
// bin/parley-attacked is built with the tag crashpoints: it ends itself with SIGKILL at the place on a payment's way
// that PARLEY_CRASH names. ATTACK_ROUNDS says how often each place is tried (default 20).
package attack
