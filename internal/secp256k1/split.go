package secp256k1

import (
	"math/bits"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// beta is a cube root of 1 modulo the prime: (beta·x, y) is lambda times the point (x, y), and lambda is a cube root of 1
// modulo the order.
var beta = field{0xc1396c28719501ee, 0x9cf0497512f58995, 0x6e64479eac3434e9, 0x7ae96a2b657c0710}

// integer is a number modulo 2^256, the lowest limb first.
type integer [4]uint64

// (a1, -b1) and (a2, a1) are the shortest (x, y) with x + y·lambda = 0 modulo the order. a1Ratio and b1Ratio are a1 and b1
// times 2^384, divided by the order and rounded.
var (
	a1      = integer{0xe86c90e49284eb15, 0x3086d221a7d46bcd}
	b1      = integer{0x6f547fa90abfe4c3, 0xe4437ed6010e8828}
	a2      = integer{0x57c1108d9d44cfd8, 0x14ca50f7a8e2f3f6, 1}
	a1Ratio = integer{0xe893209a45dbb031, 0x3daa8a1471e8ca7f, 0xe86c90e49284eb15, 0x3086d221a7d46bcd}
	b1Ratio = integer{0x1571b4ae8ac47f71, 0x221208ac9df506c6, 0x6f547fa90abfe4c4, 0xe4437ed6010e8828}
)

// split returns halves with k = x + y·lambda modulo the order: (k, 0) without the multiples of the two short vectors that
// are nearest to it. So x is at most (a1+a2)/2 and y at most (a1+b1)/2, both below 2^128.
func split(k *secp256k1.ModNScalar) (x, y half) {
	b := k.Bytes()
	var n field
	n.setBytes(&b)
	c1, c2 := integer(n).over384(a1Ratio), integer(n).over384(b1Ratio)
	x = integer(n).minus(c1.times(a1)).minus(c2.times(a2)).half()
	y = c1.times(b1).minus(c2.times(a1)).half()
	return x, y
}

func (x integer) minus(y integer) (z integer) {
	var borrow uint64
	for i := range z {
		z[i], borrow = bits.Sub64(x[i], y[i], borrow)
	}
	return z
}

func (x integer) times(y integer) integer {
	wide := product(&x, &y)
	return integer(wide[:4])
}

// over384 returns x·y / 2^384, rounded.
func (x integer) over384(y integer) integer {
	wide := product(&x, &y)
	low, carry := bits.Add64(wide[6], wide[5]>>63, 0)
	return integer{low, wide[7] + carry}
}

// product returns all limbs of x·y.
func product(x, y *integer) (z [8]uint64) {
	for i := range x {
		var above uint64
		for j := range y {
			high, low := bits.Mul64(x[i], y[j])
			var carry uint64
			low, carry = bits.Add64(low, above, 0)
			high += carry
			z[i+j], carry = bits.Add64(z[i+j], low, 0)
			above = high + carry
		}
		z[i+4] = above
	}
	return z
}

// half returns a number from -2^128 to 2^128, without both.
func (x integer) half() half {
	if x[3]>>63 == 0 {
		return half{x[0], x[1], false}
	}
	positive := integer{}.minus(x)
	return half{positive[0], positive[1], true}
}

// half is a number of 128 bits with a sign.
type half struct {
	low, high uint64
	negative  bool
}

// maxDigits is one more than the bits of a half, for a carry.
const maxDigits = 129

// digits returns h as the sum of digits[i]·2^i. Each digit is 0, or odd and between -2^(width-1) and 2^(width-1). Of width
// successive digits at most one is not 0.
func (h half) digits(width int) (digits [maxDigits]int16) {
	carry := uint64(0)
	for i := 0; i < maxDigits; {
		rest := h.high >> max(i-64, 0)
		if i < 64 {
			rest = h.low>>i | h.high<<(64-i)
		}
		if rest&1 == carry {
			i++
			continue
		}
		digit := rest&(1<<width-1) + carry
		carry = digit >> (width - 1)
		digits[i] = int16(digit) - int16(carry<<width)
		if h.negative {
			digits[i] = -digits[i]
		}
		i += width
	}
	return digits
}
