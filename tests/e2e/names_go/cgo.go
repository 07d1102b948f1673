//go:build cgo

package main

/*
#cgo CFLAGS: -O2 -fomit-frame-pointer
extern void back(int);

static unsigned long seen;

__attribute__((noinline)) static void c_leaf(int n)
{
	for (int i = 0; i < n; i++)
		seen = seen * 6364136223846793005UL + 1;
	__asm__ volatile("" : : "r"(seen));
}

__attribute__((noinline)) static void c_middle(int n)
{
	c_leaf(n);
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void c_calls_go(int n)
{
	back(n);
	__asm__ volatile("" ::: "memory");
}
*/
import "C"

//export back
func back(n C.int) { leaf(int(n)); seen++ }

//go:noinline
func intoC(n int) {
	C.c_middle(C.int(n))
	seen++
}

//go:noinline
func intoCAndBack(n int) {
	C.c_calls_go(C.int(n))
	seen++
}

func crossings(n int) {
	intoC(n)
	intoCAndBack(n)
}
