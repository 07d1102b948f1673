// ping_pong: two goroutines that hand one ball to each other over channels and burn while they have it, 60/40.
//
//	main.main -> pingWork        main.ponger -> pongWork
//
// Neither is tied to a thread, as goroutines usually are. Only the one with the ball can run, on the one processor
// that the runtime is given, so the process's CPU clock is the clock of whoever burns.
package main

import (
	"runtime"

	"workloads/truth"
)

var (
	turns, chunk, seed uint64 = 1500, 60000, 1
	truthPath          string
	ping, pong         = make(chan uint64), make(chan uint64)
	pongAccount        = truth.Function{Name: "main.pongWork", Callers: []string{"main.ponger"}}
)

//go:noinline
func pingWork(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func pongWork(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

func ponger() {
	for x := range ping {
		m := truth.StartProcess()
		x = pongWork(x, chunk*2)
		m.Stop(&pongAccount)
		pong <- x
	}
	close(pong)
}

func main() {
	truth.Parse([]truth.Option{
		{Name: "turns", Help: "times that the ball goes round", Number: &turns, Min: 1, Max: 1e9},
		{Name: "chunk", Help: "iterations: three of them on one side, two on the other", Number: &chunk, Min: 1, Max: 1e12},
		{Name: "seed", Help: "start value of the work", Number: &seed, Max: 1 << 53},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	runtime.GOMAXPROCS(1)
	account := truth.Function{Name: "main.pingWork", Callers: []string{"main.main"}}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	x := truth.Seeded(seed)
	r.Begin()
	go ponger()
	for i := uint64(0); i < turns; i++ {
		m := truth.StartProcess()
		x = pingWork(x, chunk*3)
		m.Stop(&account)
		ping <- x
		x = <-pong
	}
	close(ping)
	<-pong
	r.End()
	r.Checksum = x
	r.Functions = []truth.Function{account, pongAccount}
	truth.Lock("")
	r.Finish(truthPath)
}
