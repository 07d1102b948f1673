/* What BPF programs cost, by the kernel's own count (kernel.bpf_stats_enabled). */
#ifndef LAB_GUEST_BPF_RUN_H
#define LAB_GUEST_BPF_RUN_H

#include <stdbool.h>
#include <stdint.h>

struct bpf_run {
	uint64_t ns, count;
	uint64_t sample_ns, sample_count; /* of on_sample and on_sample_fp alone */
};

/* Switches counting on or off: 0 or -errno. */
int bpf_run_enable(bool on);
/* Sum over all programs that are loaded now; zeros where the kernel refuses to tell. */
struct bpf_run bpf_run_sum(void);

/* Programs, maps and links that are loaded in the kernel, whoever loaded them. */
uint64_t bpf_object_count(void);

#endif
