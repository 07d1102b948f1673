/* Where a debug file may be, and whether it is one. See debug_files.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "agent/debug_files_internal.h"
#include "agent/helper_identity.h"
#include "base/def.h"
#include "base/log.h"

int debug_files_open(int root, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	_cleanup_(closep) int found = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	char self[32];
	struct stat st;

	if (found < 0)
		return -errno;
	/* Before it is opened: a FIFO would wait, and a device might do anything. */
	if (fstat(found, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", found);
	int fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

/* The candidate at path, if it is of the build that `of` says. A descriptor or -1. */
static int debug_files_try(struct debug_files_search *s, const struct elf_identity *of,
	const char *path, struct elf_identity *ret)
{
	char reason[HELPER_REASON_MAX] = "";
	struct stat st;
	_cleanup_(closep) int fd = debug_files_open(s->root, path);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (st.st_dev == s->self.st_dev && st.st_ino == s->self.st_ino)
		return -1;
	int r = helper_identity_match(s->helper, of, fd, reason, ret);

	if (r == 0 && (ret->has_symtab || ret->has_dwarf))
		return steal_fd(&fd);
	s->d->stats.refused++;
	log_debug("symbolize", "debug file", "path=\"%s\" error=%d why=\"%s\"", path, -r,
		r == 0 ? "has neither symbols nor DWARF" : reason);
	return -1;
}

/* snprintf() that says whether all of it fit. */
static bool _printf_(2, 3) debug_files_path(char path[PATH_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vsnprintf(path, PATH_MAX, format, args);
	va_end(args);
	return n > 0 && n < PATH_MAX;
}

bool debug_files_hex(const struct elf_identity *of, char ret[DEBUG_FILES_HEX_SIZE])
{
	/* The first byte names the directory; with less than two more there is no name. */
	if (of->kind != ELF_IDENTITY_GNU || of->build_id_size < 3)
		return false;
	for (size_t i = 0; i < of->build_id_size; i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", of->build_id[i]); /* fits */
	return true;
}

static int debug_files_by_id(
	struct debug_files_search *s, const struct elf_identity *of, struct elf_identity *ret)
{
	char hex[DEBUG_FILES_HEX_SIZE];
	char path[PATH_MAX];
	int fd = -1;

	if (!debug_files_hex(of, hex))
		return -1;
	for (size_t i = 0; i < s->d->dir_count && fd < 0; i++)
		if (debug_files_path(
			    path, "%s/.build-id/%.2s/%s.debug", s->d->dirs[i], hex, hex + 2))
			fd = debug_files_try(s, of, path, ret);
	return fd;
}

static int debug_files_by_link(struct debug_files_search *s)
{
	const char *link = s->of.debuglink;
	char path[PATH_MAX];
	int fd = -1;

	if (!s->of.has_debuglink)
		return -1;
	if (debug_files_path(path, "%s/%s", s->dir, link))
		fd = debug_files_try(s, &s->of, path, &s->found);
	if (fd < 0 && debug_files_path(path, "%s/.debug/%s", s->dir, link))
		fd = debug_files_try(s, &s->of, path, &s->found);
	for (size_t i = 0; i < s->d->dir_count && fd < 0; i++)
		if (debug_files_path(path, "%s%s/%s", s->d->dirs[i], s->dir, link))
			fd = debug_files_try(s, &s->of, path, &s->found);
	return fd;
}

bool debug_files_search(struct debug_files_search *s)
{
	s->fd = debug_files_by_id(s, &s->of, &s->found);
	if (s->fd < 0)
		s->fd = debug_files_by_link(s);
	return s->fd >= 0;
}

int debug_files_search_alt(struct debug_files_search *s)
{
	struct elf_identity of;
	struct elf_identity found;
	char real[PATH_MAX];
	char self[32];
	char path[PATH_MAX];
	int fd = -1;

	elf_identity_alt(&s->found, &of);
	if (of.kind == ELF_IDENTITY_NONE)
		return -1;
	/* A relative one begins at the debug file, behind whatever links led to it. */
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", s->fd);
	ssize_t n = readlink(self, real, sizeof(real) - 1);
	real[MAX(n, 0)] = '\0';
	char *slash = strrchr(real, '/');
	if (slash)
		*slash = '\0';
	if (s->found.altlink[0] == '/' ? debug_files_path(path, "%s", s->found.altlink)
				       : debug_files_path(path, "%s/%s", real, s->found.altlink))
		fd = debug_files_try(s, &of, path, &found);
	return fd >= 0 ? fd : debug_files_by_id(s, &of, &found);
}
