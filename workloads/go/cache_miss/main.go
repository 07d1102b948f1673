// cache_miss: the same list walked twice, as it lies in memory and shuffled, in Go. The instructions are equal, so a
// machine with caches shows the difference as time and as misses, and one that counts instructions shows none.
//
//	main.main -> run -> walkInOrder | walkShuffled     --steps nodes each in a chunk
//	          -> prepare                               makes both lists
package main

import "workloads/truth"

// A cache line each.
type node struct {
	next *node
	n    uint64
	_    [6]uint64
}

var (
	nodes, steps, chunks, seed uint64 = 1 << 17, 400000, 100, 1
	truthPath                  string
)

//go:noinline
func walkInOrder(at *node, n uint64, sum *uint64) *node {
	s := *sum
	for ; n > 0; n-- {
		s += at.n
		at = at.next
	}
	*sum = s
	return at
}

//go:noinline
func walkShuffled(at *node, n uint64, sum *uint64) *node {
	s := *sum
	for ; n > 0; n-- {
		s += at.n
		at = at.next
	}
	*sum = s
	return at
}

// prepare links the nodes in one circle each: as they lie, and in an order without a pattern.
//
//go:noinline
func prepare(ordered, shuffled []node, random uint64) {
	order := make([]uint32, len(shuffled))
	for i := range order {
		order[i] = uint32(i)
	}
	for i := len(order) - 1; i > 0; i-- {
		k := truth.Random(&random) % uint64(i+1)
		order[i], order[k] = order[k], order[i]
	}
	for i := range ordered {
		k := (i + 1) % len(ordered)
		ordered[i].next, ordered[i].n = &ordered[k], uint64(i)
		shuffled[order[i]].next, shuffled[order[i]].n = &shuffled[order[k]], uint64(i)
	}
}

//go:noinline
func run(ordered, shuffled []node, accounts []truth.Function) uint64 {
	sum := uint64(0)
	a, b := &ordered[0], &shuffled[0]
	for i := uint64(0); i < chunks; i++ {
		m := truth.Start()
		a = walkInOrder(a, steps, &sum)
		m.Stop(&accounts[0])
		m = truth.Start()
		b = walkShuffled(b, steps, &sum)
		m.Stop(&accounts[1])
	}
	return sum + a.n + b.n
}

func init() { truth.Lock("") }

func main() {
	truth.Parse([]truth.Option{
		{Name: "nodes", Help: "nodes of each list, 64 bytes each", Number: &nodes, Min: 2, Max: 1 << 26},
		{Name: "steps", Help: "nodes in a chunk", Number: &steps, Min: 1, Max: 1e12},
		{Name: "chunks", Help: "chunks on each list", Number: &chunks, Min: 1, Max: 1e9},
		{Name: "seed", Help: "order of the shuffled list", Number: &seed, Max: 1 << 53},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	callers := []string{"main.run", "main.main"}
	accounts := []truth.Function{{Name: "main.walkInOrder", Callers: callers},
		{Name: "main.walkShuffled", Callers: callers}, {Name: "main.prepare", Callers: callers[1:]}}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	r.Begin()
	ordered, shuffled := make([]node, nodes), make([]node, nodes)
	m := truth.Start()
	prepare(ordered, shuffled, truth.Seeded(seed))
	m.Stop(&accounts[2])
	r.Checksum = run(ordered, shuffled, accounts)
	r.End()
	r.Functions = accounts
	r.Finish(truthPath)
}
