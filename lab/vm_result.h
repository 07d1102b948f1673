/*
 * Reads what the guest left on the result device. The format stands byte by byte in
 * lab/guest/result.h, which guest and host share. The guest may have died at any moment, and a
 * broken one may have written anything: every size, name and checksum is checked.
 */
#ifndef LAB_VM_RESULT_H
#define LAB_VM_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vm_result_state { VM_RESULT_CRASHED, VM_RESULT_DONE, VM_RESULT_FULL };

struct vm_result {
	enum vm_result_state state;
	uint32_t files;
	bool has_done; /* the record "done" with the text "ok\n" */
};

/* Makes the file, size bytes that the disk really has, saying "crashed". 0 or -errno. */
int vm_result_seed(const char *path, uint64_t size);

/* Called for each whole record; name is STEP/FILE or FILE, safe to use as a relative path. */
typedef int vm_result_fn(void *ctx, const char *name, const void *data, size_t size);

/*
 * 0 with *ret; -EBADMSG when it is not a result or a record is damaged (fn was called for those
 * before it); or fn's error.
 */
int vm_result_read(
	const void *data, size_t size, vm_result_fn *fn, void *ctx, struct vm_result *ret);
/* The same from a file, into out_dir/NAME. */
int vm_result_extract(const char *path, const char *out_dir, struct vm_result *ret);

#endif
