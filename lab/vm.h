/*
 * Runs a job in a VM (exact: TCG with icount; fast: KVM when a probe VM boots, else TCG) or on this
 * host, and leaves the result tree in a directory. DESIGN.md section 6 has the facts that the
 * command line rests on. Results leave through the result pmem (see vm_result.c for its format),
 * life signs through the serial console; the host never waits without a deadline.
 */
#ifndef LAB_VM_H
#define LAB_VM_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/job.h"

enum vm_mode { VM_EXACT, VM_FAST, VM_HOST };
enum vm_arch { VM_X86_64, VM_AARCH64, VM_ARCH_COUNT };

struct vm_config {
	enum vm_mode mode;
	enum vm_arch arch;
	unsigned int cpus;      /* exact mode: 1 only */
	unsigned int shift;     /* exact mode: icount shift, part of the result's identity */
	unsigned int memory_mb; /* 0: 1024 */
	const char *image_dir;  /* from image_find(): kernel, initrd parts, root, manifest.json */
	bool next_kernel;       /* image_dir is to be image_find_next_kernel()'s */
	const char *bin_dir;    /* build/: flame-agent, flame-agent-faulty, lab-init, workloads/ */
	uint64_t timeout_ms;    /* host time for the whole run */
	bool keep;              /* leave scratch files and print where they are */
	const char *append;     /* further words for the kernel command line; NULL: none */
};

enum vm_end {
	VM_OK,       /* the job came to its end and said so */
	VM_CRASHED,  /* guest panicked or powered off before "done" */
	VM_HUNG,     /* no life sign for too long, or the deadline passed */
	VM_NO_START, /* QEMU missing, broken, or refused its arguments */
	VM_NO_SPACE, /* result device or host disk full */
};

struct vm_outcome {
	enum vm_end end;
	char reason[256];  /* one line: what happened, for people */
	char console[512]; /* path of the console log */
	char accel[16];    /* "tcg+icount", "tcg", "kvm", "host" */
	uint64_t guest_ns; /* guest uptime at its end, 0 unknown */
	uint64_t host_ns;  /* real time of the run */
};

/* Called from vm_run with the guest's life signs: step started or ended. */
typedef void vm_progress_fn(void *data, const char *step, unsigned int done, unsigned int total);

/*
 * out_dir is created; holds STEP/FILE afterwards for the steps that ended. 0 with *ret filled
 * whatever the guest did; -errno when the host could not even try.
 */
int vm_run(const struct vm_config *c, const struct job *j, const char *out_dir,
	vm_progress_fn *progress, void *data, struct vm_outcome *ret);
/* A prompt in a VM on this terminal: exit code of QEMU's run, or -errno. */
int vm_shell(const struct vm_config *c);

/* What identifies a result besides its inputs: image hash, kernel, QEMU version, toolchain. */
struct image_info {
	char dir[512];
	char hash[65];
	char kernel[128];
	char qemu[128];
	char toolchain[128]; /* what built the programs that go into the VM */
	bool drifted;        /* some package was not the locked version */
};
/* The x86-64 image's root under the kernel of Debian's next release (vm-images/build-kernel.sh). 0 or -errno. */
int image_find_next_kernel(const char *source_dir, struct image_info *ret);
/* The QEMU that emulates it. */
const char *vm_qemu(enum vm_arch arch);
/*
 * Finds the cached image or builds it by vm-images/build.sh (aarch64: build-arm64.sh) with progress on stderr. 0 or
 * -errno.
 */
int image_find(const char *source_dir, enum vm_arch arch, struct image_info *ret);
/* Whether its QEMU is installed. */
bool image_has_qemu(enum vm_arch arch);

#endif
