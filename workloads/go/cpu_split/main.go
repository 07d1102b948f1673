// cpu_split: three functions at 70/20/10 % of the CPU, under two callers at 60/40 %, in Go.
//
//	main.main -> run -> pathA | pathB -> [heavyTurn -> heavyStep] -> splitHeavy, and so for medium and light
//
// What is in brackets the compiler inlines, two levels deep; the truth says so. A round is 50 chunks of equal work in
// an order that a seeded generator shuffles anew for every round, as in the C++ program: pathA 21 + 6 + 3, pathB
// 14 + 4 + 2, so proportions by work are exact after every round.
package main

import (
	"time"

	"workloads/truth"
)

const (
	paths, kinds = 2, 3
	chunks       = 50
)

var deckCounts = [paths][kinds]int{{21, 6, 3}, {14, 4, 2}}

var (
	rounds, chunk, seed, paceMS uint64 = 9, 400000, 1, 0
	seconds                     uint64
	truthPath                   string
)

// The three bodies are one loop repeated: a chain of dependent operations (xorshift64, Marsaglia 2003).

//go:noinline
func splitHeavy(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func splitMedium(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func splitLight(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

func heavyStep(x uint64) uint64  { return splitHeavy(x, chunk) | 1 }
func heavyTurn(x uint64) uint64  { return heavyStep(x) ^ 2 }
func mediumStep(x uint64) uint64 { return splitMedium(x, chunk) | 1 }
func mediumTurn(x uint64) uint64 { return mediumStep(x) ^ 2 }
func lightStep(x uint64) uint64  { return splitLight(x, chunk) | 1 }
func lightTurn(x uint64) uint64  { return lightStep(x) ^ 2 }

type state struct {
	random, x uint64
	accounts  []truth.Function // by path, then kind; then pace
}

//go:noinline
func pathA(s *state, kind int, account *truth.Function) {
	m := truth.Start()
	switch kind {
	case 0:
		s.x = heavyTurn(s.x)
	case 1:
		s.x = mediumTurn(s.x)
	default:
		s.x = lightTurn(s.x)
	}
	m.Stop(account)
}

//go:noinline
func pathB(s *state, kind int, account *truth.Function) {
	m := truth.Start()
	switch kind {
	case 0:
		s.x = heavyTurn(s.x)
	case 1:
		s.x = mediumTurn(s.x)
	default:
		s.x = lightTurn(s.x)
	}
	m.Stop(account)
}

//go:noinline
func pace(account *truth.Function) {
	m := truth.Start()
	account.Waits[0].NS += truth.Sleep(time.Duration(paceMS) * time.Millisecond)
	m.Stop(account)
}

//go:noinline
func run(s *state) {
	var deck [chunks]int
	n := 0
	for p := 0; p < paths; p++ {
		for k := 0; k < kinds; k++ {
			for i := 0; i < deckCounts[p][k]; i++ {
				deck[n] = p*kinds + k
				n++
			}
		}
	}
	end := truth.MonotonicNS() + int64(seconds)*1e9
	for r := uint64(0); r < rounds || seconds > 0; r++ {
		if seconds > 0 && truth.MonotonicNS() >= end {
			return
		}
		if r > 0 && paceMS > 0 {
			pace(&s.accounts[paths*kinds])
		}
		for i := chunks - 1; i > 0; i-- {
			k := truth.Random(&s.random) % uint64(i+1)
			deck[i], deck[k] = deck[k], deck[i]
		}
		for _, card := range deck {
			if card < kinds {
				pathA(s, card, &s.accounts[card])
			} else {
				pathB(s, card-kinds, &s.accounts[card])
			}
		}
	}
}

// Main has the main thread for itself: what its clock shows is its own.
func init() { truth.Lock("") }

func main() {
	truth.Parse([]truth.Option{
		{Name: "rounds", Help: "rounds of 50 chunks", Number: &rounds, Min: 1, Max: 1e9},
		{Name: "chunk", Help: "iterations of a chunk", Number: &chunk, Min: 1, Max: 1e12},
		{Name: "seed", Help: "order of the chunks", Number: &seed, Max: 1 << 53},
		{Name: "pace-ms", Help: "sleep between rounds", Number: &paceMS, Max: 3600000},
		{Name: "seconds", Help: "run whole rounds for so long instead of --rounds; 0 is off", Number: &seconds, Max: 1e6},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	s := &state{random: truth.Seeded(seed), x: truth.Seeded(^seed)}
	for _, p := range []string{"main.pathA", "main.pathB"} {
		for _, k := range [][3]string{{"main.splitHeavy", "main.heavyStep", "main.heavyTurn"},
			{"main.splitMedium", "main.mediumStep", "main.mediumTurn"},
			{"main.splitLight", "main.lightStep", "main.lightTurn"}} {
			s.accounts = append(s.accounts, truth.Function{Name: k[0],
				Callers: []string{k[1], k[2], p, "main.run", "main.main"}, Inlined: []string{k[1], k[2]}})
		}
	}
	if paceMS > 0 {
		s.accounts = append(s.accounts, truth.Function{Name: "main.pace", Callers: []string{"main.run", "main.main"},
			Waits: []truth.Wait{{Reason: "sleep"}}})
	}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	r.Begin()
	run(s)
	r.End()
	r.Functions, r.Checksum = s.accounts, s.x
	r.Finish(truthPath)
}
