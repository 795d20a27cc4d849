package secp256k1

import (
	"sync"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// The widths of digits. A table has 2^(width-2) points: 512 bytes for a point, and 16 kB for the generator. A generator's
// table of 64 kB saves one of 23 additions.
const (
	pointWidth     = 5
	generatorWidth = 10
)

var generator = affine{fieldOf(curve.Gx), fieldOf(curve.Gy)}

// oddOfGenerator has the odd multiples of the generator. The first recovery calculates them, in less than 0.2 ms.
var oddOfGenerator = sync.OnceValue(func() []affine {
	odd := make([]affine, 1<<(generatorWidth-2))
	scale := generator.oddMultiples(odd)
	scale.inverse(&scale)
	for i := range odd {
		odd[i].scale(&scale)
	}
	return odd
})

// oddMultiples fills odd with p, 3p, 5p and so on, with coordinates multiplied by scale² and scale³. That maps the curve
// to another one y² = x³ + c on which 2p, and then each multiple, is affine without an inversion. The formulas of
// jacobian do not depend on c.
func (p *affine) oddMultiples(odd []affine) (scale field) {
	double := jacobian{p.x, p.y, one}
	double.double()
	step, first := affine{double.x, double.y}, *p
	first.scale(&double.z)
	sum := jacobian{first.x, first.y, one}
	odd[0] = first
	var few [1 << (pointWidth - 2)]field // enough for a point, without an allocation
	ratios := few[:0]
	for i := 1; i < len(odd); i++ {
		ratios = append(ratios, sum.add(&step, nil))
		odd[i] = affine{sum.x, sum.y}
	}
	toLast := one // the last multiple's z, divided by that of odd[i]
	for i := len(odd) - 2; i >= 0; i-- {
		toLast.mul(&toLast, &ratios[i])
		odd[i].scale(&toLast)
	}
	scale.mul(&double.z, &sum.z)
	return scale
}

// term is a factor in digits and the odd multiples of the point that it multiplies. With endomorphism it multiplies lambda times
// the point. scale is that of jacobian.add.
type term struct {
	digits       [maxDigits]int16
	odd          []affine
	scale        *field
	endomorphism bool
}

// multiply returns a·G + b·p. Both factors are split into two of half the length, so that one doubling serves four digits
// (Gallant, Lambert, Vanstone: Faster point multiplication on elliptic curves with efficient endomorphisms, 2001).
func multiply(a, b *secp256k1.ModNScalar, p *affine) (sum jacobian) {
	var odd [1 << (pointWidth - 2)]affine
	scale := p.oddMultiples(odd[:])
	a1, a2 := split(a)
	b1, b2 := split(b)
	terms := [...]term{
		{a1.digits(generatorWidth), oddOfGenerator(), &scale, false},
		{a2.digits(generatorWidth), oddOfGenerator(), &scale, true},
		{b1.digits(pointWidth), odd[:], nil, false},
		{b2.digits(pointWidth), odd[:], nil, true},
	}
	for i := maxDigits - 1; i >= 0; i-- {
		sum.double()
		for j := range terms {
			t := &terms[j]
			digit := t.digits[i]
			if digit == 0 {
				continue
			}
			q := t.odd[max(digit, -digit)/2]
			if digit < 0 {
				q.y.negate(&q.y)
			}
			if t.endomorphism {
				q.x.mul(&q.x, &beta)
			}
			sum.add(&q, t.scale)
		}
	}
	sum.z.mul(&sum.z, &scale)
	return sum
}
