/*
 * QEMU's command line and the initrd. Every option of the exact mode has a measured reason in
 * DESIGN.md section 6; what matters most is what is missing: no virtio device, no network, no disk,
 * so that nothing of the host's time gets into the guest.
 */
#include "lab/vm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/def.h"
#include "base/file.h"
#include "lab/vm_cpio.h"

enum { MEMORY_MB_DEFAULT = 1024 };

void vm_argv_done(struct vm_argv *a)
{
	buf_done(&a->text);
}

/* Adds an argument; with prefix NULL the format is the whole of it. */
_printf_(2, 3) static void add(struct vm_argv *a, const char *fmt, ...)
{
	char text[PATH_MAX + 256];
	va_list ap;

	if (a->count == VM_ARGS_MAX) {
		a->text.error = -E2BIG;
		return;
	}
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	a->offsets[a->count++] = a->text.size;
	(void)buf_append(&a->text, text, strlen(text) + 1); /* the error sticks */
}

static void add_words(struct vm_argv *a, const char *words)
{
	while (*words) {
		size_t size = strcspn(words, " ");

		add(a, "%.*s", (int)size, words);
		words += size + strspn(words + size, " ");
	}
}

static void add_accel(struct vm_argv *a, const struct vm_config *c, enum vm_accel accel)
{
	unsigned int cpus = c->cpus ? c->cpus : 1;
	/* erms would make the kernel copy by "rep movsb", which icount bills per byte; the architected
	 * pointer authentication is a cipher that TCG computes at each call and return. */
	const char *cpu = c->arch == VM_AARCH64 ? "max,pauth-impdef=on" : "max,-erms";

	switch (accel) {
	case VM_ACCEL_ICOUNT:
		add_words(a, "-accel tcg -smp 1 -seed 1 -cpu");
		add(a, "%s", cpu);
		add(a, "-icount");
		add(a, "shift=%u,sleep=off", c->shift);
		add_words(a, "-rtc base=2026-01-01,clock=vm");
		return;
	case VM_ACCEL_TCG:
		add_words(a, "-accel tcg,thread=multi -cpu");
		add(a, "%s", cpu);
		break;
	case VM_ACCEL_KVM:
		add_words(a, "-accel kvm -cpu host");
		break;
	}
	add(a, "-smp");
	add(a, "%u", cpus);
}

/* QEMU takes a comma in a path for the end of the value unless it is doubled. */
static const char *escaped(const char *path, char out[PATH_MAX])
{
	size_t n = 0;

	for (; *path && n + 2 < PATH_MAX; path++) {
		if (*path == ',')
			out[n++] = ',';
		out[n++] = *path;
	}
	out[n] = 0;
	return out;
}

static int add_pmem(struct vm_argv *a, const struct vm_config *c, const struct vm_place *p)
{
	char path[PATH_MAX - 128], quoted[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/root.ext4", c->image_dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (stat(path, &st) < 0)
		return -errno;
	add(a, "-object");
	add(a, "memory-backend-file,id=root,share=off,readonly=on,size=%lld,mem-path=%s",
		(long long)st.st_size, escaped(path, quoted));
	add_words(a, "-device nvdimm,memdev=root,unarmed=on");
	add(a, "-object");
	add(a, "memory-backend-file,id=result,share=on,size=%u,mem-path=%s",
		(unsigned int)VM_RESULT_BYTES, escaped(p->result, quoted));
	add_words(a, "-device nvdimm,memdev=result");
	return 0;
}

/* Memory behind a PCI device that has neither registers nor interrupts. */
static void add_ivshmem(struct vm_argv *a, const struct vm_place *p)
{
	char quoted[PATH_MAX];

	add(a, "-object");
	add(a, "memory-backend-file,id=result,share=on,size=%u,mem-path=%s",
		(unsigned int)VM_RESULT_BYTES, escaped(p->result, quoted));
	add_words(a, "-device ivshmem-plain,memdev=result");
}

/* Machine, memory, root and result device. */
static int add_machine(struct vm_argv *a, const struct vm_config *c, const struct vm_place *p)
{
	unsigned int memory_mb = c->memory_mb ? c->memory_mb : MEMORY_MB_DEFAULT;
	int err;

	if (c->arch == VM_AARCH64) {
		/* Without firmware there is no ACPI, hence no pmem: the root is in the initramfs. */
		add_words(a, "-machine virt -m");
		add(a, "%uM", memory_mb);
		add_ivshmem(a, p);
		return 0;
	}
	add_words(a, "-machine pc,nvdimm=on -m");
	add(a, "%uM,slots=2,maxmem=%uM", memory_mb, memory_mb + 2048);
	err = add_pmem(a, c, p);
	if (err == 0)
		add_words(a, "-device pvpanic");
	return err;
}

static void add_console(struct vm_argv *a, const struct vm_place *p, int qmp_fd)
{
	char quoted[PATH_MAX];

	if (qmp_fd < 0) {
		add_words(a, "-serial mon:stdio");
		return;
	}
	add(a, "-chardev");
	add(a, "file,id=console,path=%s", escaped(p->console, quoted));
	add_words(a, "-serial chardev:console -S -chardev");
	add(a, "socket,id=qmp,fd=%d", qmp_fd);
	add_words(a, "-mon chardev=qmp,mode=control");
}

const char *vm_qemu(enum vm_arch arch)
{
	return arch == VM_AARCH64 ? "qemu-system-aarch64" : "qemu-system-x86_64";
}

int vm_argv_build(const struct vm_config *c, enum vm_accel accel, const struct vm_place *p,
	int qmp_fd, struct vm_argv *ret)
{
	_cleanup_(vm_argv_done) struct vm_argv a = {.text = BUF_INIT(64 << 10)};
	int err;

	add(&a, "%s", vm_qemu(c->arch));
	add_words(&a, "-no-user-config -nodefaults -display none -nic none -no-reboot");
	add_accel(&a, c, accel);
	err = add_machine(&a, c, p);
	if (err < 0)
		return err;
	add_words(&a, "-action panic=exit-failure");
	add_console(&a, p, qmp_fd);
	add(&a, "-kernel");
	add(&a, "%s/vmlinux", c->image_dir);
	add(&a, "-initrd");
	add(&a, "%s", p->initrd);
	add(&a, "-append");
	add(&a, "console=%s quiet panic=1 nokaslr norandmaps%s%s",
		c->arch == VM_AARCH64 ? "ttyAMA0" : "ttyS0", c->append ? " " : "",
		c->append ? c->append : "");
	if (buf_error(&a.text) < 0)
		return buf_error(&a.text);
	*ret = a;
	a.text = BUF_INIT(0); /* the bytes are the caller's now */
	for (size_t i = 0; i < ret->count; i++)
		ret->argv[i] = ret->text.data + ret->offsets[i];
	ret->argv[ret->count] = NULL;
	return 0;
}

/* --- the initrd -------------------------------------------------------------------------------- */

enum { PROGRAMS_MAX = 2 * JOB_STEPS_MAX };

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The distinct programs that the job names, sorted, so that equal jobs make equal bytes. */
static size_t job_programs(const struct job *j, bool agents, const char **names)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < j->step_count; i++) {
		const char *name = agents ? j->steps[i].agent : j->steps[i].workload;

		if (name && n < PROGRAMS_MAX)
			names[n++] = name;
		if (agents && j->steps[i].backend && n < PROGRAMS_MAX)
			names[n++] = j->steps[i].backend;
		for (size_t k = 0; !agents && j->steps[i].beside[k] && n < PROGRAMS_MAX; k++)
			names[n++] = j->steps[i].beside[k];
	}
	qsort(names, n, sizeof(names[0]), compare_names);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0)
			names[kept++] = names[i];
	return kept;
}

static int add_programs(
	struct vm_cpio *cpio, const struct vm_config *c, const struct job *j, bool agents)
{
	const char *names[PROGRAMS_MAX] = {0};
	size_t n = job_programs(j, agents, names);
	const char *sub = agents ? "" : "workloads/";
	int err = 0;

	for (size_t i = 0; err == 0 && i < n; i++) {
		char path[PATH_MAX], name[256];

		if (snprintf(path, sizeof(path), "%s/%s%s", c->bin_dir, sub, names[i]) >=
				(int)sizeof(path) ||
			snprintf(name, sizeof(name), "payload/%s%s", sub, names[i]) >=
				(int)sizeof(name))
			return -ENAMETOOLONG;
		err = vm_cpio_add_file(cpio, name, 0755, path);
	}
	return err;
}

/*
 * A program's debug file, which the Makefile left as workloads/debug/PROGRAM/.build-id/XX/REST.debug, under that
 * name in payload/debug. Most programs have none.
 */
static int add_debug_file(struct vm_cpio *cpio, const struct vm_config *c, const char *program)
{
	static const char top[] = "payload/debug";
	char path[PATH_MAX], name[PATH_MAX];
	glob_t found = {0};
	int err = 0;

	if (snprintf(path, sizeof(path), "%s/workloads/debug/%s/.build-id/*/*.debug", c->bin_dir,
		    program) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (glob(path, 0, NULL, &found) == 0 && found.gl_pathc == 1) {
		const char *tail = strstr(found.gl_pathv[0], "/.build-id/");
		static const int sizes[] = {
			0, sizeof("/.build-id") - 1, sizeof("/.build-id/XX") - 1};

		for (size_t i = 0; err == 0 && i < ARRAY_SIZE(sizes); i++) {
			(void)snprintf(name, sizeof(name), "%s%.*s", top, sizes[i],
				tail); /* shorter than path */
			err = vm_cpio_dir(cpio, name);
		}
		(void)snprintf(name, sizeof(name), "%s%s", top, tail);
		if (err == 0)
			err = vm_cpio_add_file(cpio, name, 0644, found.gl_pathv[0]);
	}
	globfree(&found);
	return err;
}

/* Equal for equal jobs: programs come sorted. */
static int add_debug_files(struct vm_cpio *cpio, const struct vm_config *c, const struct job *j)
{
	const char *names[PROGRAMS_MAX] = {0};
	size_t n = job_programs(j, false, names);
	int err = 0;

	for (size_t i = 0; err == 0 && i < n; i++)
		err = add_debug_file(cpio, c, names[i]);
	return err;
}

int vm_initrd_write(const struct vm_config *c, const struct job *j, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	_cleanup_(buf_done) struct buf text = BUF_INIT(4 << 20);
	struct vm_cpio cpio = {.fd = fd};
	char part[PATH_MAX];
	int err;

	if (fd < 0)
		return -errno;
	if ((err = job_write(j, &text)) < 0)
		return err;
	(void)snprintf(part, sizeof(part), "%s/modules.cpio", c->image_dir);
	if ((err = vm_cpio_prepend(&cpio, part)) < 0)
		return err;
	(void)snprintf(part, sizeof(part), "%s/lab-init", c->bin_dir);
	if ((err = vm_cpio_add_file(&cpio, "init", 0755, part)) < 0 ||
		(err = vm_cpio_dir(&cpio, "payload")) < 0 ||
		(err = vm_cpio_add(&cpio, "payload/job", 0100644, text.data, text.size)) < 0 ||
		(err = add_programs(&cpio, c, j, true)) < 0 ||
		(err = vm_cpio_dir(&cpio, "payload/workloads")) < 0 ||
		(err = add_programs(&cpio, c, j, false)) < 0 ||
		(err = add_debug_files(&cpio, c, j)) < 0)
		return err;
	return vm_cpio_end(&cpio);
}
