// A target of names_go.sh. It burns CPU in functions whose callers are known, see names_go_judge.py; with a second
// argument also in what the runtime does on other stacks: collection, growing stacks, signals, many goroutines.
package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

var seen uint64

//go:noinline
func leaf(n int) {
	for i := 0; i < n; i++ {
		seen = seen*6364136223846793005 + 1
	}
}

func inlinedInner(n int) { // inlined into inlinedOuter
	for i := 0; i < n; i++ {
		seen = seen*2862933555777941757 + 3037000493
	}
}

func inlinedOuter(n int) { // inlined into direct
	inlinedInner(n)
	seen++
}

//go:noinline
func direct(n int) {
	inlinedOuter(n)
	seen++
}

type pair[K comparable, V any] struct {
	k K
	v V
}

//go:noinline
func (p *pair[K, V]) spin(n int) {
	leaf(n)
	seen++
}

//go:noinline
func generic[T any](v T, n int) T {
	leaf(n)
	seen++
	return v
}

//go:noinline
func closure(n int) func() {
	return func() {
		leaf(n)
		seen++
	}
}

type node struct {
	left, right *node
	data        [40]byte
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

//go:noinline
func recurse(n int) int { // grows the stack
	var room [200]byte
	if n == 0 {
		leaf(2000000)
		return int(seen & 1)
	}
	room[n%200] = byte(n)
	return recurse(n-1) + int(room[n%200])
}

//go:noinline
func large(n int) int { // allocates on the system stack
	total := 0
	for i := 0; i < n; i++ {
		total += len(make([]byte, 100000+i))
	}
	return total
}

//go:noinline
func pingpong(n int) {
	a, b := make(chan int), make(chan int)
	go func() {
		for v := range a {
			leaf(300)
			b <- v
		}
		close(b)
	}()
	for i := 0; i < n; i++ {
		a <- i
		<-b
	}
	close(a)
}

//go:noinline
func interrupted(n int) {
	for i := 0; i < n; i++ {
		_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		leaf(10000)
	}
}

//go:noinline
func clock(n int) {
	for i := 0; i < n; i++ {
		seen += uint64(time.Now().UnixNano())
	}
}

var kept *node

//go:noinline
func stacks(n int) {
	kept = tree(14)
	done := make(chan int)
	go func() { done <- recurse(400) }()
	<-done
	seen += uint64(large(200))
	pingpong(1000)
	interrupted(100)
	clock(20000)
	crossings(n)
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	const n = 200000
	for time.Now().Before(end) {
		if len(os.Args) > 2 {
			stacks(n)
			continue
		}
		direct(n)
		(&pair[int, string]{}).spin(n)
		(&pair[string, []int]{}).spin(n)
		generic(1, n)
		generic("a", n)
		closure(n)()
	}
}
