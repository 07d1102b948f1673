// lock_convoy: goroutines queueing on one sync.Mutex, with a known CPU part inside and outside of it.
//
//	worker -> operation -> lockWait -> sync.(*Mutex).Lock
//	                    -> criticalWork    holds the mutex and burns --hold-work iterations
//	                    -> holdSleep       holds the mutex asleep for --hold-sleep-us
//	                    -> outsideWork     burns --outside-work iterations, +-25 % by the seed, in pairs of a fixed sum
//
// Every goroutine has a thread of its own, whose clock is its clock.
package main

import (
	"sync"
	"sync/atomic"
	"time"

	"workloads/truth"
)

const (
	critical = iota
	outside
	lock
	sleep
	accounts
)

var (
	threads, ops, holdWork, outsideWorkN, seed, holdSleepUS uint64 = 4, 150, 200000, 100000, 1, 0
	truthPath                                               string
	mutex                                                   sync.Mutex
	states                                                  []state
	next                                                    int32
	done                                                    sync.WaitGroup
)

type state struct {
	random, x uint64
	accounts  [accounts]truth.Function
	thread    truth.Thread
}

//go:noinline
func criticalWork(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func outsideWork(x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

//go:noinline
func lockWait(account *truth.Function) {
	m := truth.Start()
	t0 := truth.MonotonicNS()
	mutex.Lock()
	account.Waits[0].NS += truth.MonotonicNS() - t0
	m.Stop(account)
}

//go:noinline
func holdSleep(account *truth.Function) {
	m := truth.Start()
	account.Waits[0].NS += truth.Sleep(time.Duration(holdSleepUS) * time.Microsecond)
	m.Stop(account)
}

//go:noinline
func operation(s *state, n uint64) {
	lockWait(&s.accounts[lock])
	m := truth.Start()
	s.x = criticalWork(s.x, holdWork)
	m.Stop(&s.accounts[critical])
	if holdSleepUS > 0 {
		holdSleep(&s.accounts[sleep])
	}
	mutex.Unlock()
	m = truth.Start()
	s.x = outsideWork(s.x, n)
	m.Stop(&s.accounts[outside])
}

// A function without arguments starts a goroutine without a wrapper, whose name every version of Go makes up anew.
func worker() {
	index := uint64(atomic.AddInt32(&next, 1) - 1)
	truth.Lock("worker-" + string(rune('0'+index/10)) + string(rune('0'+index%10)))
	s := &states[index]
	draw := uint64(0)
	for i := uint64(0); i < ops; i++ {
		if i%2 == 0 {
			draw = truth.Random(&s.random) % (outsideWorkN/4 + 1)
			operation(s, outsideWorkN+draw)
		} else {
			operation(s, outsideWorkN-draw)
		}
	}
	s.thread = truth.Account()
	done.Done()
}

func newState(index uint64) state {
	callers := []string{"main.operation", "main.worker"}
	s := state{random: truth.Seeded(seed*64 + index)}
	s.x = truth.Seeded(^s.random)
	s.accounts[critical] = truth.Function{Name: "main.criticalWork", Callers: callers}
	s.accounts[outside] = truth.Function{Name: "main.outsideWork", Callers: callers}
	s.accounts[lock] = truth.Function{Name: "main.lockWait", Callers: callers, Waits: []truth.Wait{{Reason: "lock"}}}
	s.accounts[sleep] = truth.Function{Name: "main.holdSleep", Callers: callers, Waits: []truth.Wait{{Reason: "sleep"}}}
	return s
}

func init() { truth.Lock("") }

func main() {
	truth.Parse([]truth.Option{
		{Name: "threads", Help: "goroutines on the mutex", Number: &threads, Min: 1, Max: 64},
		{Name: "ops", Help: "operations of each", Number: &ops, Min: 1, Max: 1e9},
		{Name: "hold-work", Help: "iterations with the mutex held", Number: &holdWork, Min: 1, Max: 1e12},
		{Name: "outside-work", Help: "iterations without it", Number: &outsideWorkN, Min: 1, Max: 1e12},
		{Name: "hold-sleep-us", Help: "sleep with the mutex held; 0 is none", Number: &holdSleepUS, Max: 1e9},
		{Name: "seed", Help: "lengths of the outside work", Number: &seed, Max: 1 << 47},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	for i := uint64(0); i < threads; i++ {
		states = append(states, newState(i))
	}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	done.Add(int(threads))
	r.Begin()
	for range states {
		go worker()
	}
	done.Wait()
	r.End()
	for i := range states {
		for k := range states[0].accounts {
			if i > 0 {
				states[0].accounts[k].Add(&states[i].accounts[k])
			}
		}
		r.Checksum += states[i].x
		r.Threads = append(r.Threads, states[i].thread)
	}
	r.Functions = states[0].accounts[:]
	if holdSleepUS == 0 {
		r.Functions = r.Functions[:sleep]
	}
	r.Finish(truthPath)
}
