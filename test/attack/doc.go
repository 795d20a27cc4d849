//go:build attack

// Package attack contains the tests that attack real `parley serve` processes on a real PostgreSQL. The facilitator is behind
// a proxy that drops, delays, truncates and falsifies responses. The tests compare three sources from outside: the payee's
// balance on the play-money network, the payments table, and the effects of the payments.
//
// bin/parley-attacked is built with the tag crashpoints: it ends itself with SIGKILL at the step of a payment that
// PARLEY_CRASH names, and its clock is wrong by PARLEY_CLOCK_SHIFT.
package attack
