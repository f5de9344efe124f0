package generate

// Perplexity does not see loops: a damaged model may foretell a good text well and
// still not write one. An answer has fallen into a loop if one of these holds
// anywhere in it, at its end or before:
//
//   - a cycle: one piece of tokens loopTimes times over without a break, loopTokens or
//     more of them together;
//   - repetition: of some loopWindow places on end, at least loopRepeated begin
//     loopGram tokens that the answer had before. It finds loops that change a little
//     in each round, such as a list whose numbers go up.
const (
	loopTimes    = 3
	loopTokens   = 24
	loopGram     = 4
	loopWindow   = 64
	loopRepeated = 40
)

// Cycle is a piece of a text that comes again and again. The zero Cycle is none.
type Cycle struct {
	// Period is the length of the piece, in tokens.
	Period int `json:"period"`
	// Start is the place of the first token, End that behind the last.
	Start int `json:"start"`
	End   int `json:"end"`
}

// FindCycle finds the longest cycle of a text, of equally long ones that of the
// shortest piece, then the first.
func FindCycle(ids []int32) Cycle {
	var best Cycle
	for period := 1; period*loopTimes <= len(ids); period++ {
		same := 0
		for i := period; i <= len(ids); i++ {
			if i < len(ids) && ids[i] == ids[i-period] {
				same++
				continue
			}
			if n := same + period; n >= period*loopTimes && n >= loopTokens && n > best.End-best.Start {
				best = Cycle{period, i - n, i}
			}
			same = 0
		}
	}
	return best
}

// Repeated counts places that begin loopGram tokens which the text had before, of
// those that can: all of them, and the most of any loopWindow places on end.
func Repeated(ids []int32) (share float64, most int) {
	places := len(ids) - loopGram + 1
	if places <= 0 {
		return 0, 0
	}
	seen := make(map[[loopGram]int32]bool, places)
	again := make([]bool, places)
	total, here := 0, 0
	for i := range again {
		gram := [loopGram]int32(ids[i:])
		if again[i] = seen[gram]; again[i] {
			total++
			here++
		}
		seen[gram] = true
		if i >= loopWindow && again[i-loopWindow] {
			here--
		}
		if here > most {
			most = here
		}
	}
	return float64(total) / float64(places), most
}

// LoopKind says why an answer counts as one that fell into a loop.
type LoopKind string

// The kinds.
const (
	NoLoop     LoopKind = ""
	LoopCycle  LoopKind = "cycle"
	LoopRepeat LoopKind = "repetition"
)

// judge finds out whether an answer fell into a loop.
func (a *LoopAnswer) judge(ids []int32) {
	a.Cycle = FindCycle(ids)
	share, most := Repeated(ids)
	a.Repeated = share
	switch {
	case a.Cycle.Period > 0:
		a.Loop = LoopCycle
	case most >= loopRepeated:
		a.Loop = LoopRepeat
	}
}
