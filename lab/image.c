/*
 * Finds the VM image: vm-images/build.sh knows whether the cache has it and builds it otherwise, so
 * it is always asked; with the image in the cache that takes about a second, in which all of its bytes are
 * checked. What it says on stderr is
 * for people and goes straight there.
 */
#include "lab/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "lab/json.h"

/* From nothing on a slow line; builds of others are waited for. */
enum { BUILD_TIMEOUT_MS = 3600000, VERSION_TIMEOUT_MS = 20000, OUTPUT_MAX = 8192 };

/* Runs it with stderr inherited; its stdout is one line, which a pipe always holds. */
static int run_build(const char *script, struct buf *out)
{
	_cleanup_(child_done) struct child child = {.pidfd = -1};
	char *const argv[] = {(char *)script, (char[]){"--print-dir"}, NULL};
	int fds[2], err;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_(closep) int in = fds[0];
	struct child_io io = {.in = -1, .out = fds[1], .err = 2};
	err = child_start(&child, argv, &io);
	(void)close(fds[1]); /* the child has its own */
	if (err < 0 || (err = child_wait(&child, BUILD_TIMEOUT_MS)) < 0)
		return err;
	if (!WIFEXITED(child.status) || WEXITSTATUS(child.status) != 0)
		return -EIO;
	return file_read_fd(in, out);
}

static int read_manifest(struct image_info *info)
{
	_cleanup_(json_done) struct json doc = {0};
	char path[PATH_MAX];
	struct json_at root, at;
	int err;

	(void)snprintf(path, sizeof(path), "%s/manifest.json", info->dir);
	err = json_load(&doc, path);
	if (err == 0) {
		root = json_root(&doc);
		at = json_need(&root, "hash");
		(void)snprintf(info->hash, sizeof(info->hash), "%s", json_text(&at, "", 64, 64));
		at = json_need(&root, "kernel");
		(void)snprintf(info->kernel, sizeof(info->kernel), "%s",
			json_text(&at, "", 1, sizeof(info->kernel) - 1));
		at = json_need(&root, "drifted");
		info->drifted = json_bool(&at, true);
	}
	if (err < 0 || json_failed(&doc)) {
		(void)fprintf(stderr, "image: %s\n", doc.message);
		return err < 0 ? err : -EBADMSG;
	}
	return 0;
}

/* "QEMU emulator version 7.2.22 (Debian ...)", or "" where it is not installed. */
static void read_qemu_version(enum vm_arch arch, char *out, size_t size)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(OUTPUT_MAX);
	char *const argv[] = {(char *)vm_qemu(arch), (char[]){"--version"}, NULL};

	out[0] = 0;
	if (child_run(argv, &b, VERSION_TIMEOUT_MS) == 0)
		(void)snprintf(out, size, "%.*s", (int)strcspn(buf_str(&b), "\n"), buf_str(&b));
}

bool image_has_qemu(enum vm_arch arch)
{
	char version[128];

	read_qemu_version(arch, version, sizeof(version));
	return version[0];
}

static int find_by(
	const char *source_dir, const char *name, enum vm_arch arch, struct image_info *ret)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(OUTPUT_MAX);
	struct image_info info = {0};
	char script[PATH_MAX];
	size_t size;
	int err;

	if (snprintf(script, sizeof(script), "%s/vm-images/%s", source_dir, name) >=
		(int)sizeof(script))
		return -ENAMETOOLONG;
	if ((err = run_build(script, &out)) < 0)
		return err;
	size = strcspn(buf_str(&out), "\n");
	if (size == 0 || size >= sizeof(info.dir))
		return -ENAMETOOLONG;
	memcpy(info.dir, buf_str(&out), size);
	if ((err = read_manifest(&info)) < 0)
		return err;
	read_qemu_version(arch, info.qemu, sizeof(info.qemu));
	(void)snprintf(info.toolchain, sizeof(info.toolchain), "gcc %s", __VERSION__);
	*ret = info;
	return 0;
}

int image_find(const char *source_dir, enum vm_arch arch, struct image_info *ret)
{
	return find_by(source_dir, arch == VM_AARCH64 ? "build-arm64.sh" : "build.sh", arch, ret);
}

int image_find_next_kernel(const char *source_dir, struct image_info *ret)
{
	return find_by(source_dir, "build-kernel.sh", VM_X86_64, ret);
}
