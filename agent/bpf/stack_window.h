/*
 * User memory as the unwinder reads it: one window of STACK_WINDOW_SIZE bytes, copied from the stack at
 * once and moved when a read leaves it. A copy of 4 KiB costs what two reads of 8 bytes cost
 * (measured: 197 and 2 x 100 ns).
 *
 * A copy that runs into a page that is not there fails as a whole, after some 650 ns; then the window ends at
 * the page's boundary, and the boundary (`wall`) is remembered for the next sample of the same stack.
 *
 * The source is the current task's memory, or a copy of its stack that was kept (deferred.h).
 */
#ifndef AGENT_BPF_STACK_WINDOW_H
#define AGENT_BPF_STACK_WINDOW_H

enum { STACK_WINDOW_SIZE = 4096, STACK_WINDOW_READ_MAX = 136 };

struct stack_window {
	__u64 start, size; /* of what is in bytes */
	__u64 wall;        /* a page that could not be read */
	__u64 kept; /* address of the kept copy in the kernel; 0: none, the task's own memory */
	__u64 kept_start, kept_size; /* what user addresses it has */
	__u64 kept_holes;            /* bit i: page i from the first one of it could not be read */
	__u8 bytes[STACK_WINDOW_SIZE + STACK_WINDOW_READ_MAX];
};

static __noinline int stack_window_copy_kept(struct stack_window *w, __u64 at)
{
	__u64 offset = at - w->kept_start;
	__u64 page = at / STACK_WINDOW_SIZE - w->kept_start / STACK_WINDOW_SIZE;
	__u64 size;

	w->size = 0;
	if (offset >= w->kept_size || (w->kept_holes >> (page & 63) & 1))
		return -1;
	size = w->kept_size - offset;
	if (size > STACK_WINDOW_SIZE)
		size = STACK_WINDOW_SIZE;
	if ((w->kept_holes >> ((page + 1) & 63) & 1) &&
		size > STACK_WINDOW_SIZE - (at & (STACK_WINDOW_SIZE - 1)))
		size = STACK_WINDOW_SIZE - (at & (STACK_WINDOW_SIZE - 1));
	if (bpf_probe_read_kernel(w->bytes, size, (const void *)(w->kept + offset)) != 0)
		return -1;
	w->start = at;
	w->size = size;
	return 0;
}

static __noinline int stack_window_copy(struct stack_window *w, __u64 at)
{
	__u64 next_page = (at | (STACK_WINDOW_SIZE - 1)) + 1;
	__u64 size = STACK_WINDOW_SIZE;

	w->start = at;
	w->size = 0;
	if (next_page != w->wall) {
		if (bpf_probe_read_user(w->bytes, size, (const void *)at) == 0) {
			w->size = size;
			return 0;
		}
		if (next_page - at == STACK_WINDOW_SIZE)
			return -1;
		w->wall = next_page;
	}
	size = STACK_WINDOW_SIZE - (at & (STACK_WINDOW_SIZE - 1));
	if (bpf_probe_read_user(w->bytes, size, (const void *)at) != 0)
		return -1;
	w->size = size;
	return 0;
}

static __always_inline bool stack_window_has(const struct stack_window *w, __u64 at, __u64 size)
{
	__u64 offset = at - w->start;

	return offset < STACK_WINDOW_SIZE && offset + size <= w->size;
}

/* Copies size bytes, a constant multiple of 8. 0, or -1: not readable. */
static __always_inline int stack_window_read(
	struct stack_window *w, __u64 *dst, __u64 size, __u64 at)
{
	const __u8 *from;

	if (!stack_window_has(w, at, size)) {
		/* Aligned down, so that a window at an odd address is no special case. */
		if (w->kept ? stack_window_copy_kept(w, at & ~7ULL)
			    : stack_window_copy(w, at & ~7ULL))
			return -1;
		if (!stack_window_has(w, at, size))
			return -1;
	}
	from = w->bytes + ((at - w->start) & (STACK_WINDOW_SIZE - 1));
#pragma GCC unroll 20
	for (__u64 i = 0; i < size / 8; i++)
		dst[i] = ((const __u64 *)from)[i];
	return 0;
}

#endif
