/* What the files of lab/vm*.c share: a run's directory, QEMU's command line, the watch over it. */
#ifndef LAB_VM_INTERNAL_H
#define LAB_VM_INTERNAL_H

#include <limits.h>

#include "base/buf.h"
#include "lab/vm.h"

enum vm_accel { VM_ACCEL_ICOUNT, VM_ACCEL_TCG, VM_ACCEL_KVM };

enum { VM_RESULT_BYTES = 64 << 20, VM_ARGS_MAX = 64 };

/* Paths of one run's scratch files. */
struct vm_place {
	char dir[PATH_MAX - 32]; /* OUT/.vm, removed at the end unless kept */
	char initrd[PATH_MAX];
	char result[PATH_MAX];
	char qemu_log[PATH_MAX];
	char console[PATH_MAX]; /* OUT/console.log stays */
};

/* An argv whose strings live in one buffer. */
struct vm_argv {
	struct buf text;
	size_t offsets[VM_ARGS_MAX];
	size_t count;
	char *argv[VM_ARGS_MAX + 1];
};

void vm_argv_done(struct vm_argv *a); /* usable as cleanup attribute */
/*
 * qmp_fd is QEMU's end of the socket pair, -1 for none (a shell on this terminal). 0 or -errno.
 */
int vm_argv_build(const struct vm_config *c, enum vm_accel accel, const struct vm_place *p,
	int qmp_fd, struct vm_argv *ret);

/* The image's modules, then the payload: lab-init, the job, and what the job names. */
int vm_initrd_write(const struct vm_config *c, const struct job *j, const char *path);

/* Makes the directories and names the files. 0 or -errno. */
int vm_place_make(const char *out_dir, struct vm_place *ret);
void vm_place_remove(const struct vm_place *p);

/* Boots and watches; the outcome is filled whatever happens. 0, or -errno when nothing was tried. */
int vm_boot(const struct vm_config *c, enum vm_accel accel, const struct job *j,
	const struct vm_place *p, const char *out_dir, vm_progress_fn *progress, void *data,
	struct vm_outcome *ret);
/* Whether KVM boots a guest here, asked once per host boot. */
bool vm_kvm_works(const struct vm_config *c);

/* Life signs, as lab/guest/init.c prints them. */
struct vm_signs {
	struct buf line; /* the one that is not whole yet */
	char step[96];   /* the step that runs; "" between steps */
	uint64_t timeout_ms;
	unsigned int done;
	bool booted, full, finished;
	uint64_t guest_ns;
	char error[160]; /* "flamelab: error ..." */
	char panic[160]; /* "Kernel panic ...", "BUG: ..." */
	const struct job *job;
	vm_progress_fn *progress;
	void *data;
};
void vm_signs_init(struct vm_signs *s, const struct job *j, vm_progress_fn *progress, void *data);
void vm_signs_done(struct vm_signs *s); /* usable as cleanup attribute */
void vm_signs_feed(struct vm_signs *s, const char *text, size_t size);

#define VM_SHELL_PREFIX "flamelab-shell."
/* Removes what shells left in parent that were killed: their directories are locked by nobody. */
void vm_shell_clean(const char *parent);

int vm_host_run(const struct vm_config *c, const struct job *j, const char *out_dir,
	vm_progress_fn *progress, void *data, struct vm_outcome *ret);

#endif
