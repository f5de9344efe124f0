package needle

import (
	"context"

	"quern/runtime/num"
)

const (
	hashSeed  = 0x9E3779B9
	hashPrime = 0x01000193
)

// slot hashes the last order tokens, the newest last in ids, for one table.
// table counts from 1 over orders and heads.
func slot(ids []int32, order int, table, slots uint32) int {
	acc := uint32(hashSeed) * table
	for j := range order {
		acc = (acc ^ uint32(ids[len(ids)-1-j])) * hashPrime
	}
	acc ^= acc >> 15
	return int(acc % slots)
}

// fetch writes the rows that the tables of a site have for the tokens up to
// position pos: tables*sub values. Those whose n-gram would begin before the text
// are zero.
func (s *session) fetch(dst []float32, site, pos int) error {
	p, tables := s.m.p, s.m.w.sites[site].tables
	for o, order := range p.orders {
		for h := range p.orderHeads {
			table := o*p.orderHeads + h
			row := dst[table*p.sub:][:p.sub]
			if pos+1 < order {
				clear(row)
				continue
			}
			at := table*p.slots + slot(s.tokens[:pos+1], order, uint32(o)*p.seedStride+uint32(h)+1, uint32(p.slots))
			if err := tables.row(row, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// engram adds what a site has to say to buf.x of n tokens.
func (s *session) engram(ctx context.Context, site, n int) error {
	p, b, w := s.m.p, &s.buf, &s.m.w.sites[site]
	d, wide := p.d, p.tables*p.sub
	fetched := grow(&b.fetched, n*wide)
	for t := range n {
		if err := s.fetch(fetched[t*wide:][:wide], site, s.ready+t); err != nil {
			return err
		}
	}
	in := s.enter(fetched, n, wide, s.opt.Round8)
	keys, values := grow(&b.keys, n*d), grow(&b.values, n*d)
	if err := s.multiply(ctx, whole(keys, w.key, in), whole(values, w.value, in)); err != nil {
		return err
	}
	s.sites[site].convolve(values, w.taps, p.dilation, n)
	root := num.Sqrt(float32(d))
	unit := grow(&s.scratch[0].mean, d)
	for t := range n {
		x, k := b.x[t*d:][:d], keys[t*d:][:d]
		num.RMSNorm(unit, x, nil, eps)
		num.RMSNorm(k, k, nil, eps)
		num.AddScaled(x, values[t*d:][:d], sigmoid(num.Dot(unit, k)/root))
	}
	return nil
}
