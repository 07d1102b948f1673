package truth

import (
	"os"
	"strconv"
)

// Record is everything one run tells. Begin and End enclose the measured phase.
type Record struct {
	Workload      string
	Seed          uint64
	Checksum      uint64
	WallNS, CPUNS int64
	Functions     []Function
	Threads       []Thread // those that ended; Finish adds the others
}

// Begin starts the clocks.
func (r *Record) Begin() {
	r.WallNS = MonotonicNS()
	r.CPUNS = clockNS(clockProcessCPU)
}

// End stops the clocks.
func (r *Record) End() {
	r.CPUNS = clockNS(clockProcessCPU) - r.CPUNS
	r.WallNS = MonotonicNS() - r.WallNS
}

type text []byte

func (t *text) str(s string) {
	*t = append(*t, '"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '"' || c == '\\' || c < 0x20 || c >= 0x7f {
			*t = append(*t, "\\u00"...)
			*t = append(*t, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		} else {
			*t = append(*t, c)
		}
	}
	*t = append(*t, '"')
}

func (t *text) strs(list []string) {
	*t = append(*t, '[')
	for i, s := range list {
		if i > 0 {
			*t = append(*t, ", "...)
		}
		t.str(s)
	}
	*t = append(*t, ']')
}

func (t *text) number(name string, n int64) {
	*t = append(*t, ", \""...)
	*t = append(*t, name...)
	*t = append(*t, "\": "...)
	*t = strconv.AppendInt(*t, n, 10)
}

func (t *text) function(f *Function) {
	*t = append(*t, "    {\"name\": "...)
	t.str(f.Name)
	*t = append(*t, ", \"callers\": "...)
	t.strs(f.Callers)
	if len(f.Inlined) > 0 {
		*t = append(*t, ", \"inlined\": "...)
		t.strs(f.Inlined)
	}
	t.number("cpu_ns", f.CPUNS)
	t.number("wall_ns", f.WallNS)
	t.number("count", f.Count)
	*t = append(*t, ", \"wait_ns\": {"...)
	for i, w := range f.Waits {
		if i > 0 {
			*t = append(*t, ", "...)
		}
		t.str(w.Reason)
		*t = append(*t, ": "...)
		*t = strconv.AppendInt(*t, w.NS, 10)
	}
	*t = append(*t, "}}"...)
}

func (t *text) thread(x *Thread) {
	*t = append(*t, "    {\"tid\": "...)
	*t = strconv.AppendInt(*t, int64(x.TID), 10)
	*t = append(*t, ", \"name\": "...)
	t.str(x.Name)
	t.number("cpu_ns", x.CPUNS)
	t.number("run_delay_ns", x.RunDelayNS)
	t.number("slices", x.Slice)
	if x.Alive {
		*t = append(*t, ", \"alive\": true"...)
	}
	*t = append(*t, '}')
}

// json has no wait_ns of the process: the runtime's own threads sleep for reasons that nobody measures.
func (r *Record) json(threads []Thread) []byte {
	t := make(text, 0, 16<<10)
	t = append(t, "{\n  \"schema\": \"flame-truth/1\",\n  \"workload\": "...)
	t.str(r.Workload)
	t = append(t, ",\n  \"argv\": "...)
	t.strs(os.Args)
	t.number("pid", int64(os.Getpid()))
	t = append(t, ", \"seed\": "...)
	t = strconv.AppendUint(t, r.Seed, 10)
	t = append(t, ", \"checksum\": "...)
	t.str(hex64(r.Checksum))
	t.number("wall_ns", r.WallNS)
	t.number("cpu_ns", r.CPUNS)
	t = append(t, ",\n  \"functions\": [\n"...)
	for i := range r.Functions {
		if i > 0 {
			t = append(t, ",\n"...)
		}
		t.function(&r.Functions[i])
	}
	t = append(t, "\n  ],\n  \"threads\": [\n"...)
	for i := range threads {
		if i > 0 {
			t = append(t, ",\n"...)
		}
		t.thread(&threads[i])
	}
	return append(t, "\n  ],\n  \"wait_ns\": {}\n}\n"...)
}

func hex64(n uint64) string {
	s := strconv.FormatUint(n, 16)
	return "0000000000000000"[len(s):] + s
}

// Finish writes the truth to path through a temporary name beside it, unless path is empty, and prints the one line
// that proves the work. Main's account is taken here, so that it is its last act.
func (r *Record) Finish(path string) {
	rest := others(r.Threads)
	threads := append([]Thread{Account()}, r.Threads...)
	threads = append(threads, rest...)
	if path != "" {
		temporary := path + "." + strconv.Itoa(os.Getpid()) + ".tmp"
		err := os.WriteFile(temporary, r.json(threads), 0o644)
		if err == nil {
			err = os.Rename(temporary, path)
		}
		if err != nil {
			_ = os.Remove(temporary) // the first error is the one to tell
			Fail(path, err.Error())
		}
	}
	_, err := os.Stdout.WriteString(r.Workload + " checksum=" + hex64(r.Checksum) + " cpu_ns=" +
		strconv.FormatInt(r.CPUNS, 10) + " wall_ns=" + strconv.FormatInt(r.WallNS, 10) + "\n")
	if err != nil {
		Fail("stdout", err.Error())
	}
}
