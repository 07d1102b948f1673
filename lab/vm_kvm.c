/*
 * Does KVM work here? That /dev/kvm opens proves nothing: some hosts accept a VM and then hang a
 * stock kernel. So a VM is booted under it with an empty job and a deadline, once per host boot; the
 * verdict is kept in the cache directory, keyed by boot id and kernel image.
 */
#include "lab/vm_internal.h"

#include <errno.h>
#include <fcntl.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

/* A working KVM boots in about two seconds. */
enum { PROBE_TIMEOUT_MS = 12000 };

static bool cache_path(const struct vm_config *c, char path[PATH_MAX])
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	_cleanup_(buf_done) struct buf boot_id = BUF_INIT(64);
	const char *hash = strrchr(c->image_dir, '/');
	int n;

	if (file_read("/proc/sys/kernel/random/boot_id", &boot_id) < 0 || boot_id.size < 8)
		return false;
	hash = hash ? hash + 1 : c->image_dir;
	if (xdg && xdg[0] == '/')
		n = snprintf(path, PATH_MAX, "%s/flamelab/kvm-%.36s-%.16s", xdg, buf_str(&boot_id),
			hash);
	else
		n = snprintf(path, PATH_MAX, "%s/.cache/flamelab/kvm-%.36s-%.16s",
			home ? home : "/tmp", buf_str(&boot_id), hash);
	return n < PATH_MAX;
}

static bool probe(const struct vm_config *c)
{
	char dir[] = "/tmp/flamelab-kvm.XXXXXX";
	struct vm_config probe_config = *c;
	struct vm_outcome outcome = {.end = VM_CRASHED};
	struct job nothing = {0};
	struct vm_place place;

	probe_config.cpus = 1;
	probe_config.timeout_ms = PROBE_TIMEOUT_MS;
	probe_config.append = NULL;
	if (!mkdtemp(dir))
		return false;
	if (vm_place_make(dir, &place) == 0) {
		if (vm_boot(&probe_config, VM_ACCEL_KVM, &nothing, &place, dir, NULL, NULL,
			    &outcome) < 0)
			outcome.end = VM_CRASHED;
		vm_place_remove(&place);
		(void)unlink(place.console);
	}
	char done[64];
	(void)snprintf(done, sizeof(done), "%s/done", dir);
	(void)unlink(done); /* there only when it worked */
	(void)rmdir(dir);
	return outcome.end == VM_OK;
}

bool vm_kvm_works(const struct vm_config *c)
{
	_cleanup_(buf_done) struct buf known = BUF_INIT(16);
	_cleanup_(closep) int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	char path[PATH_MAX];
	bool cached = cache_path(c, path), works;

	if (kvm < 0)
		return false;
	if (cached && file_read(path, &known) == 0)
		return str_has_prefix(buf_str(&known), "works");
	works = probe(c);
	if (cached)
		(void)file_write_atomic(path, works ? "works\n" : "hangs\n", 6); /* only a cache */
	return works;
}
