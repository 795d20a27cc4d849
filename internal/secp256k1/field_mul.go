package secp256k1

import "math/bits"

// mul multiplies limb by limb, a row for each limb of x. Loops over the limbs take a fifth longer.
func (z *field) mul(x, y *field) {
	var carry uint64
	h0, r0 := bits.Mul64(x[0], y[0])
	h1, r1 := bits.Mul64(x[0], y[1])
	h2, r2 := bits.Mul64(x[0], y[2])
	h3, r3 := bits.Mul64(x[0], y[3])
	r1, carry = bits.Add64(r1, h0, 0)
	r2, carry = bits.Add64(r2, h1, carry)
	r3, carry = bits.Add64(r3, h2, carry)
	r4 := h3 + carry

	h0, l0 := bits.Mul64(x[1], y[0])
	h1, l1 := bits.Mul64(x[1], y[1])
	h2, l2 := bits.Mul64(x[1], y[2])
	h3, l3 := bits.Mul64(x[1], y[3])
	l1, carry = bits.Add64(l1, h0, 0)
	l2, carry = bits.Add64(l2, h1, carry)
	l3, carry = bits.Add64(l3, h2, carry)
	h3 += carry
	r1, carry = bits.Add64(r1, l0, 0)
	r2, carry = bits.Add64(r2, l1, carry)
	r3, carry = bits.Add64(r3, l2, carry)
	r4, carry = bits.Add64(r4, l3, carry)
	r5 := h3 + carry

	h0, l0 = bits.Mul64(x[2], y[0])
	h1, l1 = bits.Mul64(x[2], y[1])
	h2, l2 = bits.Mul64(x[2], y[2])
	h3, l3 = bits.Mul64(x[2], y[3])
	l1, carry = bits.Add64(l1, h0, 0)
	l2, carry = bits.Add64(l2, h1, carry)
	l3, carry = bits.Add64(l3, h2, carry)
	h3 += carry
	r2, carry = bits.Add64(r2, l0, 0)
	r3, carry = bits.Add64(r3, l1, carry)
	r4, carry = bits.Add64(r4, l2, carry)
	r5, carry = bits.Add64(r5, l3, carry)
	r6 := h3 + carry

	h0, l0 = bits.Mul64(x[3], y[0])
	h1, l1 = bits.Mul64(x[3], y[1])
	h2, l2 = bits.Mul64(x[3], y[2])
	h3, l3 = bits.Mul64(x[3], y[3])
	l1, carry = bits.Add64(l1, h0, 0)
	l2, carry = bits.Add64(l2, h1, carry)
	l3, carry = bits.Add64(l3, h2, carry)
	h3 += carry
	r3, carry = bits.Add64(r3, l0, 0)
	r4, carry = bits.Add64(r4, l1, carry)
	r5, carry = bits.Add64(r5, l2, carry)
	r6, carry = bits.Add64(r6, l3, carry)

	z.fold(r0, r1, r2, r3, r4, r5, r6, h3+carry)
}

// square multiplies different limbs once and doubles the sum.
func (z *field) square(x *field) {
	var carry uint64
	h1, r1 := bits.Mul64(x[0], x[1])
	h2, r2 := bits.Mul64(x[0], x[2])
	h3, r3 := bits.Mul64(x[0], x[3])
	r2, carry = bits.Add64(r2, h1, 0)
	r3, carry = bits.Add64(r3, h2, carry)
	r4 := h3 + carry

	h3, l3 := bits.Mul64(x[1], x[2])
	h4, l4 := bits.Mul64(x[1], x[3])
	l4, carry = bits.Add64(l4, h3, 0)
	h4 += carry
	r3, carry = bits.Add64(r3, l3, 0)
	r4, carry = bits.Add64(r4, l4, carry)
	r5 := h4 + carry

	h5, l5 := bits.Mul64(x[2], x[3])
	r5, carry = bits.Add64(r5, l5, 0)
	r6 := h5 + carry

	r7 := r6 >> 63
	r6 = r6<<1 | r5>>63
	r5 = r5<<1 | r4>>63
	r4 = r4<<1 | r3>>63
	r3 = r3<<1 | r2>>63
	r2 = r2<<1 | r1>>63
	r1 <<= 1

	h0, r0 := bits.Mul64(x[0], x[0])
	h1, l1 := bits.Mul64(x[1], x[1])
	h2, l2 := bits.Mul64(x[2], x[2])
	h3, l3 = bits.Mul64(x[3], x[3])
	r1, carry = bits.Add64(r1, h0, 0)
	r2, carry = bits.Add64(r2, l1, carry)
	r3, carry = bits.Add64(r3, h1, carry)
	r4, carry = bits.Add64(r4, l2, carry)
	r5, carry = bits.Add64(r5, h2, carry)
	r6, carry = bits.Add64(r6, l3, carry)

	z.fold(r0, r1, r2, r3, r4, r5, r6, r7+h3+carry)
}

// fold sets z to a number of eight limbs: the upper four count excess times as much.
func (z *field) fold(r0, r1, r2, r3, r4, r5, r6, r7 uint64) {
	var carry uint64
	h0, l0 := bits.Mul64(r4, excess)
	h1, l1 := bits.Mul64(r5, excess)
	h2, l2 := bits.Mul64(r6, excess)
	h3, l3 := bits.Mul64(r7, excess)
	l1, carry = bits.Add64(l1, h0, 0)
	l2, carry = bits.Add64(l2, h1, carry)
	l3, carry = bits.Add64(l3, h2, carry)
	h3 += carry
	r0, carry = bits.Add64(r0, l0, 0)
	r1, carry = bits.Add64(r1, l1, carry)
	r2, carry = bits.Add64(r2, l2, carry)
	r3, carry = bits.Add64(r3, l3, carry)

	h0, l0 = bits.Mul64(h3+carry, excess) // below 2^67
	r0, carry = bits.Add64(r0, l0, 0)
	r1, carry = bits.Add64(r1, h0, carry)
	if carry != 0 { // as in add
		r2, carry = bits.Add64(r2, 0, carry)
		r3, carry = bits.Add64(r3, 0, carry)
		r0, carry = bits.Add64(r0, -carry&excess, 0) // after a carry out of r3 the number is below 2^67
		r1 += carry
	}
	z[0], z[1], z[2], z[3] = r0, r1, r2, r3
}
