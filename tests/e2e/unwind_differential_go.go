// A target of unwind_differential.sh: goroutines that format, sort, encode and hand over. Runs until it is killed.
package main

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

func work(seed int) int {
	words := []string{}
	for i := 0; i < 200; i++ {
		words = append(words, fmt.Sprintf("w%d", (i*7919+seed)%1000))
	}
	sort.Strings(words)
	return len(strings.Replace(strings.Join(words, " "), "w", "xy", -1)) + int(time.Now().UnixNano()&1)
}

func main() {
	done := make(chan int)
	for g := 0; g < 4; g++ {
		go func(g int) {
			for i := 0; ; i++ {
				done <- work(g * i)
			}
		}(g)
	}
	for range done {
	}
}
