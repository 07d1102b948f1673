// cgo_split: 50 % of the CPU in a C leaf, 30 % in Go called by C called by Go, 20 % in Go.
//
//	main.main -> run -> callLeaf   -> [cgo] -> c_leaf
//	                 -> callMiddle -> [cgo] -> c_middle -> goBurn (the C side) -> [cgo] -> main.goBurn -> goInner
//	                 -> goLeaf
//
// What is in brackets the runtime and cgo put in between, under names of their own.
package main

/*
#include <stdint.h>
extern uint64_t c_leaf(uint64_t x, uint64_t n);
extern uint64_t c_middle(uint64_t x, uint64_t n);
*/
import "C"

import "workloads/truth"

var (
	rounds, chunk, seed uint64 = 60, 300000, 1
	truthPath           string
)

//go:noinline
func goLeaf(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func goInner(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//export goBurn
func goBurn(x, n C.uint64_t) C.uint64_t { return C.uint64_t(goInner(uint64(x), uint64(n))) | 1 }

//go:noinline
func callLeaf(x uint64) uint64 {
	return uint64(C.c_leaf(C.uint64_t(x), C.uint64_t(chunk)))
}

//go:noinline
func callMiddle(x uint64) uint64 {
	return uint64(C.c_middle(C.uint64_t(x), C.uint64_t(chunk)))
}

//go:noinline
func run(accounts []truth.Function) uint64 {
	x := truth.Seeded(seed)
	for i := uint64(0); i < rounds; i++ {
		for k := 0; k < 10; k++ {
			m := truth.Start()
			switch {
			case k%2 == 0:
				x = callLeaf(x)
				m.Stop(&accounts[0])
			case k < 6:
				x = callMiddle(x)
				m.Stop(&accounts[1])
			default:
				x = goLeaf(x, chunk)
				m.Stop(&accounts[2])
			}
		}
	}
	return x
}

func init() { truth.Lock("") }

func main() {
	truth.Parse([]truth.Option{
		{Name: "rounds", Help: "rounds of 10 chunks", Number: &rounds, Min: 1, Max: 1e9},
		{Name: "chunk", Help: "iterations of a chunk", Number: &chunk, Min: 1, Max: 1e12},
		{Name: "seed", Help: "start value of the work", Number: &seed, Max: 1 << 53},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	accounts := []truth.Function{
		{Name: "c_leaf", Callers: []string{"main.callLeaf", "main.run", "main.main"}},
		{Name: "main.goInner", Callers: []string{"main.goBurn", "goBurn", "c_middle", "main.callMiddle", "main.run",
			"main.main"}},
		{Name: "main.goLeaf", Callers: []string{"main.run", "main.main"}}}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	r.Begin()
	r.Checksum = run(accounts)
	r.End()
	r.Functions = accounts
	r.Finish(truthPath)
}
