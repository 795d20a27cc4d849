//go:build attack

// Package attack contains the attack and fault tests (`make attack`). They start real `parley serve` processes on a real
// PostgreSQL and kill them. The facilitator is behind a proxy that drops, delays, truncates and falsifies responses. After
// each case the tests compare three sources from outside: the payee's balance on the play-money network, the payments table,
// and the effects of the payments (world.check).
//
// bin/parley-attacked is built with the tag crashpoints: it ends itself with SIGKILL at the step of a payment that
// PARLEY_CRASH names, and its clock is wrong by PARLEY_CLOCK_SHIFT. ATTACK_ROUNDS is how often each step is tried (default 20).
package attack
