/*
 * Walks the loaded BPF programs by id. Raw system calls, because PID 1 has no libbpf.
 */
#include "lab/guest/bpf_run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/def.h"

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

int bpf_run_enable(bool on)
{
	_cleanup_(closep) int fd = open("/proc/sys/kernel/bpf_stats_enabled", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, on ? "1" : "0", 1) < 0)
		return -errno;
	return 0;
}

struct bpf_run bpf_run_sum(void)
{
	struct bpf_run sum = {0};
	union bpf_attr attr;
	uint32_t id = 0;

	for (;;) {
		struct bpf_prog_info info;

		memset(&attr, 0, sizeof(attr));
		attr.start_id = id;
		if (bpf(BPF_PROG_GET_NEXT_ID, &attr) < 0)
			return sum;
		id = attr.next_id;
		memset(&attr, 0, sizeof(attr));
		attr.prog_id = id;
		_cleanup_(closep) int fd = bpf(BPF_PROG_GET_FD_BY_ID, &attr);
		if (fd < 0)
			continue; /* it went between the two calls */
		memset(&attr, 0, sizeof(attr));
		memset(&info, 0, sizeof(info));
		attr.info.bpf_fd = (uint32_t)fd;
		attr.info.info_len = sizeof(info);
		attr.info.info = (uintptr_t)&info;
		if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) < 0)
			continue;
		sum.ns += info.run_time_ns;
		sum.count += info.run_cnt;
		if (strncmp(info.name, "on_sample", strlen("on_sample")) == 0) {
			sum.sample_ns += info.run_time_ns;
			sum.sample_count += info.run_cnt;
		}
	}
}

uint64_t bpf_object_count(void)
{
	static const int commands[] = {
		BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID};
	union bpf_attr attr;
	uint64_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		memset(&attr, 0, sizeof(attr));
		while (bpf(commands[i], &attr) == 0) {
			attr.start_id = attr.next_id;
			count++;
		}
	}
	return count;
}
