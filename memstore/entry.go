package memstore

import (
	"math/bits"

	"weir.dev/weir/internal/algorithm"
)

// identity is 128 bits of a limit's name, a key and a kind of state under seeds of this
// store. The zero one marks a free slot; lo is never 0 in any other.
type identity struct{ hi, lo uint64 }

// entry is one slot of a table: 32 bytes without a pointer, so that the garbage
// collector does not look at tables and a cache line holds two.
type entry struct {
	id    identity
	state state
}

// state is what is kept of a key, packed into 128 bits. The two highest bits of a
// name the form:
//
//	tat      a: 53 bits of µs         b: 32 bits of rem, 32 bits of den-1
//	window   a: as sliding, prev 0    b: as sliding
//	sliding  a: 52 bits of start, 8 bits of period, the 33rd bits of cur and prev
//	         b: 32 bits of cur, 32 bits of prev
//	log      a: index of the log      b: µs at which its newest entry is gone
//
// The period is there to know when the state is as new again; see packPeriod.
type state struct{ a, b uint64 }

const (
	formTAT uint64 = iota << formShift
	formWindow
	formSliding
	formLog

	formShift = 62
	formMask  = 3 << formShift

	startShift, startBits = 10, 52
	periodShift           = 2

	// maxTime is the first time that does not fit: the year 2112. A theoretical
	// arrival time runs ahead of it by less than 2^51 µs.
	maxTime = 1 << startBits
)

func packTAT(t algorithm.TAT) state {
	return state{formTAT | uint64(t.Micros), uint64(t.Rem)<<32 | uint64(t.Den-1)}
}

func (s state) tat() algorithm.TAT {
	return algorithm.TAT{Micros: int64(s.a &^ formMask), Rem: int64(s.b >> 32), Den: int64(s.b&(1<<32-1)) + 1}
}

func packWindow(w algorithm.Window, period int64) state {
	s := packSliding(algorithm.Sliding{Start: w.Start, Cur: w.Count}, period)
	s.a = s.a&^formMask | formWindow
	return s
}

func (s state) window() algorithm.Window {
	w := s.sliding()
	return algorithm.Window{Start: w.Start, Count: w.Cur}
}

// packSliding keeps counts up to 2^32, which take 33 bits each.
func packSliding(w algorithm.Sliding, period int64) state {
	return state{
		a: formSliding | uint64(w.Start)<<startShift | packPeriod(period)<<periodShift | uint64(w.Cur)>>32<<1 | uint64(w.Prev)>>32,
		b: uint64(w.Cur)<<32 | uint64(w.Prev)&(1<<32-1),
	}
}

func (s state) sliding() algorithm.Sliding {
	return algorithm.Sliding{
		Start: int64(s.a &^ formMask >> startShift),
		Cur:   int64(s.a>>1&1<<32 | s.b>>32),
		Prev:  int64(s.a&1<<32 | s.b&(1<<32-1)),
	}
}

func packLog(index int, until int64) state { return state{formLog | uint64(index), uint64(until)} }

func (s state) logIndex() int { return int(s.a &^ formMask) }

// fresh returns the time from which the state is as new, so that forgetting it changes
// nothing. Windows are kept up to a quarter of their period longer.
func (s state) fresh() int64 {
	switch s.a & formMask {
	case formWindow:
		return s.window().Start + unpackPeriod(s.a>>periodShift&0xff)
	case formSliding:
		return s.sliding().Start + 2*unpackPeriod(s.a>>periodShift&0xff)
	case formLog:
		return int64(s.b)
	}
	t := s.tat()
	if t.Rem > 0 {
		return t.Micros + 1
	}
	return t.Micros
}

// packPeriod rounds a period of 1 µs or more up to three significant bits: an exponent
// above two bits.
func packPeriod(micros int64) uint64 {
	exp := max(bits.Len64(uint64(micros))-3, 0)
	m := uint64(micros+1<<exp-1) >> exp // up to 8
	switch {
	case m < 4:
		m = 4
	case m == 8:
		exp, m = exp+1, 4
	}
	return uint64(exp)<<2 | m&3
}

func unpackPeriod(p uint64) int64 { return int64(p&3|4) << (p >> 2) }
