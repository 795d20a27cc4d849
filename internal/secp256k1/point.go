package secp256k1

// affine is a point of the curve y² = x³ + 7, other than the point at infinity.
type affine struct{ x, y field }

// jacobian is the point (x/z², y/z³), or the point at infinity if z is 0.
type jacobian struct{ x, y, z field }

var one = field{1}

// findY sets y from x. It returns false if no point has this x.
func (p *affine) findY(odd bool) bool {
	p.y.square(&p.x)
	p.y.mul(&p.y, &p.x)
	p.y.add(&p.y, &field{7})
	if !p.y.root(&p.y) {
		return false
	}
	p.y.reduce()
	if (p.y[0]&1 == 1) != odd {
		p.y.negate(&p.y)
	}
	return true
}

// scale multiplies x by z² and y by z³.
func (p *affine) scale(z *field) {
	var power field
	power.square(z)
	p.x.mul(&p.x, &power)
	power.mul(&power, z)
	p.y.mul(&p.y, &power)
}

// affine returns false for the point at infinity.
func (p *jacobian) affine() (q affine, ok bool) {
	if p.z.isZero() {
		return q, false
	}
	var z field
	z.inverse(&p.z)
	q = affine{p.x, p.y}
	q.scale(&z)
	return q, true
}

// double adds p to itself. No point has y 0, because the curve's order is odd.
func (p *jacobian) double() {
	var slope, square, t field
	p.z.mul(&p.z, &p.y)
	square.square(&p.y)
	slope.square(&p.x)
	t.half(&slope)
	slope.add(&slope, &t) // 3x²/2
	t.mul(&p.x, &square)
	p.x.square(&slope)
	p.x.sub(&p.x, &t)
	p.x.sub(&p.x, &t)
	t.sub(&t, &p.x)
	t.mul(&t, &slope)
	square.square(&square)
	p.y.sub(&t, &square)
}

// add adds q to p. If scale is not nil, p stands for (x/(z·scale)², y/(z·scale)³). It returns the number by which it
// multiplied z, unless p was q, or p or the sum is the point at infinity.
func (p *jacobian) add(q *affine, scale *field) (ratio field) {
	z := p.z
	if scale != nil {
		z.mul(&z, scale)
	}
	if z.isZero() {
		scaled := *q
		if scale != nil {
			scaled.scale(scale)
		}
		*p = jacobian{scaled.x, scaled.y, one}
		return ratio
	}
	var slope, square, cube, t field
	t.square(&z)
	ratio.mul(&q.x, &t)
	ratio.sub(&ratio, &p.x)
	t.mul(&t, &z)
	slope.mul(&q.y, &t)
	slope.sub(&slope, &p.y)
	if ratio.isZero() { // the same x: p is q or -q
		if slope.isZero() {
			p.double()
		} else {
			p.z = field{}
		}
		return ratio
	}
	p.z.mul(&p.z, &ratio)
	square.square(&ratio)
	cube.mul(&square, &ratio)
	t.mul(&square, &p.x)
	p.x.square(&slope)
	p.x.sub(&p.x, &cube)
	p.x.sub(&p.x, &t)
	p.x.sub(&p.x, &t)
	t.sub(&t, &p.x)
	t.mul(&t, &slope)
	cube.mul(&cube, &p.y)
	p.y.sub(&t, &cube)
	return ratio
}
