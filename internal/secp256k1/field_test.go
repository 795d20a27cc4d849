package secp256k1

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// edges are limbs at which carries and borrows begin or end. The last one times excess is -1 modulo 2^64.
var edges = []uint64{0, 1, 2, excess - 1, excess, excess + 1, 1 << 32, 1 << 63, 1<<64 - excess - 1, 1<<64 - excess, 1<<64 - excess + 1,
	1<<64 - 2, 1<<64 - 1, 0x27c7f6e22ddacacf}

// edgy returns a limb that is often an edge.
func edgy() uint64 {
	if rand.N(4) == 0 {
		return rand.Uint64()
	}
	return edges[rand.N(len(edges))]
}

// edgyField returns a number that is often close to 0 or to 2^256.
func edgyField() field {
	switch rand.N(6) {
	case 0:
		return field{edgy()}
	case 1:
		return field{edgy(), 1<<64 - 1, 1<<64 - 1, 1<<64 - 1}
	}
	return field{edgy(), edgy(), edgy(), edgy()}
}

func toBig(limbs ...uint64) *big.Int {
	n := new(big.Int)
	for i := len(limbs) - 1; i >= 0; i-- {
		n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(limbs[i]))
	}
	return n
}

// checkField compares a number with that of big integers.
func checkField(t *testing.T, name string, got field, want *big.Int, operands ...field) {
	t.Helper()
	want.Mod(want, curve.P)
	zero := want.Sign() == 0
	if got.isZero() != zero {
		t.Fatalf("%s of %x is zero: %t, want %t", name, operands, got.isZero(), zero)
	}
	var b [32]byte
	got.putBytes(&b)
	if new(big.Int).SetBytes(b[:]).Cmp(want) != 0 {
		t.Fatalf("%s of %x is %x, want %x", name, operands, b, want)
	}
}

// TestField compares the arithmetic with that of big integers, mostly where limbs carry.
func TestField(t *testing.T) {
	t.Parallel()
	two, half := big.NewInt(2), new(big.Int).ModInverse(big.NewInt(2), curve.P)
	for range 100_000 {
		x, y := edgyField(), edgyField()
		if rand.N(8) == 0 {
			y = x
		}
		bx, by := toBig(x[:]...), toBig(y[:]...)
		var z field
		z.add(&x, &y)
		checkField(t, "the sum", z, new(big.Int).Add(bx, by), x, y)
		z.sub(&x, &y)
		checkField(t, "the difference", z, new(big.Int).Sub(bx, by), x, y)
		z.mul(&x, &y)
		checkField(t, "the product", z, new(big.Int).Mul(bx, by), x, y)
		z.square(&x)
		checkField(t, "the square", z, new(big.Int).Exp(bx, two, nil), x)
		z.negate(&x)
		checkField(t, "the opposite", z, new(big.Int).Neg(bx), x)
		z.half(&x)
		checkField(t, "half", z, new(big.Int).Mul(bx, half), x)
		z.fold(x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3])
		checkField(t, "the remainder", z, toBig(append(x[:], y[:]...)...), x, y)
	}
}

// TestFold has numbers that fold makes overflow 2^256 twice.
func TestFold(t *testing.T) {
	t.Parallel()
	modulus := toBig(0, 0, 0, 0, 1)
	for range 20_000 {
		y := edgyField()
		upper := toBig(y[:]...)
		upper.Mul(upper, big.NewInt(excess))
		top := new(big.Int).Rsh(upper, 256)
		top.Add(top, big.NewInt(rand.Int64N(2)))
		// lower + upper is top·2^256 - top·excess + an edge, if top is right.
		lower := toBig(edgy())
		lower.Sub(lower, top.Mul(top, big.NewInt(excess))).Sub(lower, upper).Mod(lower, modulus)
		x, z := fieldOf(lower), field{}
		z.fold(x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3])
		checkField(t, "the remainder", z, upper.Add(upper, lower), x, y)
	}
}

func TestInverseAndRoot(t *testing.T) {
	t.Parallel()
	for range 2000 {
		x := edgyField()
		bx := new(big.Int).Mod(toBig(x[:]...), curve.P)
		root, z := new(big.Int).ModSqrt(bx, curve.P), x
		if ok := z.root(&z); ok != (root != nil) {
			t.Fatalf("%x has a root: %t, want %t", x, ok, root != nil)
		}
		z.square(&z)
		if root != nil {
			checkField(t, "the square of the root", z, bx, x)
		}
		if !x.isZero() {
			z.inverse(&x)
			checkField(t, "the inverse", z, new(big.Int).ModInverse(bx, curve.P), x)
		}
	}
}

// TestSplit checks that the halves and their digits stand for the factor.
func TestSplit(t *testing.T) {
	t.Parallel()
	lambda, _ := new(big.Int).SetString("5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72", 16)
	for range 20_000 {
		var k secp256k1.ModNScalar
		limbs := edgyField()
		var b [32]byte
		toBig(limbs[:]...).FillBytes(b[:])
		k.SetBytes(&b)
		x, y := split(&k)
		sum := new(big.Int)
		for _, width := range []int{pointWidth, generatorWidth} {
			sum.Mul(valueOf(t, y, width), lambda)
			sum.Add(sum, valueOf(t, x, width)).Mod(sum, curve.N)
			if b = k.Bytes(); sum.Cmp(new(big.Int).SetBytes(b[:])) != 0 {
				t.Fatalf("%x is split into %v and %v", b, x, y)
			}
		}
	}
}

// valueOf returns the number of a half after it checked its digits.
func valueOf(t *testing.T, h half, width int) *big.Int {
	t.Helper()
	n, next := new(big.Int), maxDigits
	digits := h.digits(width)
	for i := maxDigits - 1; i >= 0; i-- {
		digit := digits[i]
		n.Lsh(n, 1).Add(n, big.NewInt(int64(digit)))
		if digit == 0 {
			continue
		}
		if digit%2 == 0 || max(digit, -digit) >= 1<<(width-1) || next < i+width && next < maxDigits {
			t.Fatalf("the digits of %v with width %d are %d", h, width, digits)
		}
		next = i
	}
	want := toBig(h.low, h.high)
	if h.negative {
		want.Neg(want)
	}
	if n.Cmp(want) != 0 {
		t.Fatalf("the digits of %v with width %d are %d", h, width, digits)
	}
	return n
}
