// Package truth tells what a workload really did, by its own clocks: truth.json, whose schema stands in
// ../../README.md. It shares nothing with the C++ programs' truth.hpp, and neither shares anything with us.
//
// Clocks are read by raw system calls around pieces of work of about a millisecond, never inside them. A thread's CPU
// clock is only a goroutine's own after Lock: the runtime moves goroutines from thread to thread. What fails ends the
// program with exit code 1, because a run without a truth is worth nothing.
package truth

import (
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic  = 1
	clockProcessCPU = 2
	clockThreadCPU  = 3
	prSetName       = 15
)

// Fail ends the program with one line on standard error.
func Fail(what, why string) {
	_, _ = os.Stderr.WriteString("truth: " + what + ": " + why + "\n") // nobody is left to tell
	os.Exit(1)
}

func clockNS(id uintptr) int64 {
	var ts syscall.Timespec
	_, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	if e != 0 {
		Fail("clock_gettime", e.Error())
	}
	return ts.Nano()
}

// MonotonicNS is the clock of waits.
func MonotonicNS() int64 { return clockNS(clockMonotonic) }

// Sleep really took what it returns.
func Sleep(d time.Duration) int64 {
	t0 := MonotonicNS()
	time.Sleep(d)
	return MonotonicNS() - t0
}

// Lock ties the calling goroutine to its thread, for good: the thread ends with it. An empty name keeps the thread's.
func Lock(name string) {
	runtime.LockOSThread()
	if name == "" {
		return
	}
	comm := append([]byte(name), 0)
	_, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0, 0)
	if e != 0 {
		Fail("prctl", e.Error())
	}
}

// Wait is nanoseconds waited for a reason: "lock", "sleep", "fsync", "turn".
type Wait struct {
	Reason string
	NS     int64
}

// Function is one function under one chain of callers, the direct one first. Inlined are those of them that the
// compiler put into the next caller that is not. Times include what it calls.
type Function struct {
	Name             string
	Callers, Inlined []string
	CPUNS, WallNS    int64
	Count            int64
	Waits            []Wait
}

// Add adds another thread's account of the same function.
func (f *Function) Add(other *Function) {
	f.CPUNS += other.CPUNS
	f.WallNS += other.WallNS
	f.Count += other.Count
	for i := range f.Waits {
		f.Waits[i].NS += other.Waits[i].NS
	}
}

// Meter measures one call. The zero clock of Start is the thread's; StartProcess takes the process's, for goroutines
// that are not tied to a thread and of which only one can run.
type Meter struct {
	clock     uintptr
	cpu, wall int64
}

//go:noinline
func Start() Meter {
	return Meter{clock: clockThreadCPU, wall: MonotonicNS(), cpu: clockNS(clockThreadCPU)}
}

//go:noinline
func StartProcess() Meter {
	return Meter{clock: clockProcessCPU, wall: MonotonicNS(), cpu: clockNS(clockProcessCPU)}
}

// Stop adds the call's times to the function's account.
//
//go:noinline
func (m *Meter) Stop(f *Function) {
	f.CPUNS += clockNS(m.clock) - m.cpu
	f.WallNS += MonotonicNS() - m.wall
	f.Count++
}
