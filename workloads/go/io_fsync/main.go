// io_fsync: a program that waits for its disk between two pieces of work, in Go.
//
//	main.main -> run -> fill        burns --chunk iterations for what is written
//	                 -> writeSync   writes a page and waits in fsync
package main

import (
	"os"

	"workloads/truth"
)

var (
	writes, chunk, seed uint64 = 400, 200000, 1
	truthPath, dir             = "", "/tmp"
)

//go:noinline
func fill(page []byte, x, n uint64) uint64 {
	for ; n > 0; n-- {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	for i := range page {
		page[i] = byte(x >> (i % 8))
	}
	return x
}

//go:noinline
func writeSync(f *os.File, page []byte, at int64, account *truth.Function) {
	if _, err := f.WriteAt(page, at); err != nil {
		truth.Fail("write", err.Error())
	}
	t0 := truth.MonotonicNS()
	if err := f.Sync(); err != nil {
		truth.Fail("fsync", err.Error())
	}
	account.Waits[0].NS += truth.MonotonicNS() - t0
}

//go:noinline
func run(f *os.File, accounts []truth.Function) uint64 {
	x := truth.Seeded(seed)
	page := make([]byte, 4096)
	for i := uint64(0); i < writes; i++ {
		m := truth.Start()
		x = fill(page, x, chunk)
		m.Stop(&accounts[0])
		m = truth.Start()
		writeSync(f, page, int64(i%64)*4096, &accounts[1])
		m.Stop(&accounts[1])
	}
	return x
}

func init() { truth.Lock("") }

func main() {
	truth.Parse([]truth.Option{
		{Name: "writes", Help: "writes of a page, each followed by fsync", Number: &writes, Min: 1, Max: 1e9},
		{Name: "chunk", Help: "iterations before each", Number: &chunk, Min: 1, Max: 1e12},
		{Name: "seed", Help: "start value of the work", Number: &seed, Max: 1 << 53},
		{Name: "dir", Help: "where the file is made", Text: &dir},
		{Name: "truth", Help: "file for truth.json", Text: &truthPath},
	})
	f, err := os.CreateTemp(dir, "io_fsync.")
	if err == nil {
		err = os.Remove(f.Name()) // only its descriptor is used
	}
	if err != nil {
		truth.Fail(dir, err.Error())
	}
	callers := []string{"main.run", "main.main"}
	accounts := []truth.Function{{Name: "main.fill", Callers: callers},
		{Name: "main.writeSync", Callers: callers, Waits: []truth.Wait{{Reason: "fsync"}}}}
	r := truth.Record{Workload: truth.Name(), Seed: seed}
	r.Begin()
	r.Checksum = run(f, accounts)
	r.End()
	r.Functions = accounts
	r.Finish(truthPath)
}
