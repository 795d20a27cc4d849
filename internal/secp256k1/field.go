package secp256k1

import (
	"encoding/binary"
	"math/big"
	"math/bits"
)

// field is a number modulo the curve's prime p = 2^256 - excess, in four limbs, the lowest first. It can be any number
// below 2^256: those from p on stand for 0 and the numbers after it, and reduce makes them so. The methods set z, which
// can also be an operand. Their time depends on the numbers, which must not be secret.
type field [4]uint64

// excess is 2^256 modulo p: a carry out of the highest limb counts as much.
const excess = 1<<32 + 977

var prime = fieldOf(curve.P)

func fieldOf(n *big.Int) (z field) {
	z.setBytes((*[32]byte)(n.FillBytes(make([]byte, 32))))
	return z
}

func (z *field) setBytes(b *[32]byte) {
	for i := range z {
		z[i] = binary.BigEndian.Uint64(b[24-8*i:])
	}
}

// putBytes reduces z and encodes it.
func (z *field) putBytes(b *[32]byte) {
	z.reduce()
	for i := range z {
		binary.BigEndian.PutUint64(b[24-8*i:], z[i])
	}
}

func (z *field) reduce() {
	if z[3]&z[2]&z[1] == 1<<64-1 && z[0] >= prime[0] {
		*z = field{z[0] - prime[0]}
	}
}

func (z *field) isZero() bool { return z[0]|z[1]|z[2]|z[3] == 0 || *z == prime }

// add adds. About one carry of 2^32 goes beyond the lowest limb: a branch costs less than the carries.
func (z *field) add(x, y *field) {
	z0, carry := bits.Add64(x[0], y[0], 0)
	z1, carry := bits.Add64(x[1], y[1], carry)
	z2, carry := bits.Add64(x[2], y[2], carry)
	z3, carry := bits.Add64(x[3], y[3], carry)
	z0, carry = bits.Add64(z0, -carry&excess, 0)
	if carry != 0 {
		z1, carry = bits.Add64(z1, 0, carry)
		z2, carry = bits.Add64(z2, 0, carry)
		z3, carry = bits.Add64(z3, 0, carry)
		z0 += -carry & excess // no carry: the number is below excess
	}
	z[0], z[1], z[2], z[3] = z0, z1, z2, z3
}

func (z *field) sub(x, y *field) {
	z0, borrow := bits.Sub64(x[0], y[0], 0)
	z1, borrow := bits.Sub64(x[1], y[1], borrow)
	z2, borrow := bits.Sub64(x[2], y[2], borrow)
	z3, borrow := bits.Sub64(x[3], y[3], borrow)
	z0, borrow = bits.Sub64(z0, -borrow&excess, 0)
	if borrow != 0 { // as in add
		z1, borrow = bits.Sub64(z1, 0, borrow)
		z2, borrow = bits.Sub64(z2, 0, borrow)
		z3, borrow = bits.Sub64(z3, 0, borrow)
		z0 -= -borrow & excess // no borrow: the number is at least 2^256 - excess
	}
	z[0], z[1], z[2], z[3] = z0, z1, z2, z3
}

func (z *field) negate(x *field) { z.sub(&prime, x) }

// half sets z to x/2. An odd x becomes even with p.
func (z *field) half(x *field) {
	odd := -(x[0] & 1)
	z0, carry := bits.Add64(x[0], odd&prime[0], 0)
	z1, carry := bits.Add64(x[1], odd, carry)
	z2, carry := bits.Add64(x[2], odd, carry)
	z3, carry := bits.Add64(x[3], odd, carry)
	z[0], z[1], z[2], z[3] = z0>>1|z1<<63, z1>>1|z2<<63, z2>>1|z3<<63, z3>>1|carry<<63
}

// chain returns x to the powers that in binary are 2, 22 and 223 ones.
func chain(x *field) (ones2, ones22, ones223 field) {
	power, ones := *x, 1
	join := func(low *field, n int) { // appends n ones, the exponent of low
		power.squareTimes(n)
		power.mul(&power, low)
		ones += n
	}
	twice := func() {
		low := power
		join(&low, ones)
	}
	twice()
	ones2 = power
	join(x, 1)
	ones3 := power
	twice() // 6
	join(&ones3, 3)
	join(&ones2, 2) // 11
	twice()
	ones22 = power
	twice()
	ones44 := power
	twice()
	twice() // 176
	join(&ones44, 44)
	join(&ones3, 3)
	return ones2, ones22, power
}

// root sets z to the square root of x that is x^((p+1)/4). It returns false if x has none.
func (z *field) root(x *field) bool {
	ones2, ones22, power := chain(x)
	power.squareTimes(23)
	power.mul(&power, &ones22)
	power.squareTimes(6)
	power.mul(&power, &ones2)
	power.squareTimes(2)
	var square field
	square.square(&power)
	square.sub(&square, x)
	*z = power
	return square.isZero()
}

// inverse sets z to 1/x, which is x^(p-2).
func (z *field) inverse(x *field) {
	ones2, ones22, power := chain(x)
	power.squareTimes(23)
	power.mul(&power, &ones22)
	power.squareTimes(5)
	power.mul(&power, x)
	power.squareTimes(3)
	power.mul(&power, &ones2)
	power.squareTimes(2)
	z.mul(&power, x)
}

// squareTimes squares z n times.
func (z *field) squareTimes(n int) {
	for range n {
		z.square(z)
	}
}
