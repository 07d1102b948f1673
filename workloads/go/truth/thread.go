package truth

import (
	"bytes"
	"os"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// Thread is a thread's /proc schedstat line.
type Thread struct {
	TID                      int
	Name                     string
	CPUNS, RunDelayNS, Slice int64
	Alive                    bool // read by another thread, so it may have more at its end
}

// readRaw reads a small file without the runtime's poller: nothing may move the goroutine or start a thread here.
func readRaw(path string) (string, bool) {
	var line [256]byte
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	n, err := syscall.Read(fd, line[:])
	_ = syscall.Close(fd) // it was only read
	if err != nil || n <= 0 {
		return "", false
	}
	return string(bytes.TrimRight(line[:n], "\n")), true
}

// account reads the thread of directory dir. False: it is gone.
func account(dir string, tid int) (Thread, bool) {
	comm, there := readRaw(dir + "/comm")
	line, there2 := readRaw(dir + "/schedstat")
	if !there || !there2 {
		return Thread{}, false
	}
	var n [3]int64
	fields := strings.Fields(line)
	for i := range n {
		var err error
		if i >= len(fields) {
			Fail(dir+"/schedstat", line)
		}
		if n[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			Fail(dir+"/schedstat", line)
		}
	}
	return Thread{tid, comm, n[0], n[1], n[2], false}, true
}

// Account is the calling thread's, to be taken as its last act. What follows the reading is not in it, so everything
// is done once before, for the page faults of the first time.
func Account() Thread {
	dir, tid := "/proc/thread-self", syscall.Gettid()
	_, _ = account(dir, tid) // for the page faults only
	_ = clockNS(clockThreadCPU)
	t, there := account(dir, tid)
	if !there {
		Fail(dir, "not there")
	}
	return t
}

// others are the process's threads but the calling one and those known: the runtime's own, which sleep while the last
// goroutine runs.
func others(known []Thread) []Thread {
	const dir = "/proc/self/task"
	entries, err := os.ReadDir(dir)
	if err != nil {
		Fail(dir, err.Error())
	}
	skip := map[int]bool{syscall.Gettid(): true}
	for i := range known {
		skip[known[i].TID] = true
	}
	var threads []Thread
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil || skip[tid] {
			continue
		}
		if t, there := account(dir+"/"+e.Name(), tid); there {
			t.Alive = true
			threads = append(threads, t)
		}
	}
	sort.Slice(threads, func(i, j int) bool { return threads[i].TID < threads[j].TID })
	return threads
}
