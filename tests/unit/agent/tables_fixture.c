/* See tables_fixture.h. Files are copies of the C library in a directory of our own. */
#include "tables_fixture.h"

#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/def.h"
#include "base/file.h"
#include "base/loop.h"

static int make_map(enum bpf_map_type type, const char *name, size_t key, size_t value,
	size_t entries, uint32_t flags, int inner)
{
	struct bpf_map_create_opts o = {.sz = sizeof(o), .map_flags = flags};

	if (inner >= 0)
		o.inner_map_fd = (uint32_t)inner;
	int fd = bpf_map_create(type, name, (uint32_t)key, (uint32_t)value, (uint32_t)entries, &o);

	if (fd == -EPERM)
		cr_skip_test("SKIP: bpf() is refused: needs root or CAP_BPF");
	cr_assert_geq(fd, 0, "%s: %s", name, strerror(-fd));
	return fd;
}

static void *map_memory(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	cr_assert_neq(memory, MAP_FAILED);
	return memory;
}

uint64_t tables_fixture_start(pid_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	cr_assert_eq(file_read(path, &b), 0);
	char *pos = strrchr(b.data, ')');
	for (int i = 2; i < 22; i++)
		pos = strchr(pos, ' ') + 1;
	return strtoull(pos, NULL, 10) * (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
}

struct process_key tables_fixture_key(pid_t pid)
{
	return (struct process_key){
		.tgid = (uint32_t)pid, .start_ns = tables_fixture_start(pid), .exec_id = 3};
}

void tables_fixture_again(struct tables_fixture *s, uint32_t budget_mb)
{
	tables_free(s->t);
	s->t = NULL;
	memset(s->dirs, 0, TABLE_DIRS_MAX * sizeof(*s->dirs));
	cr_assert_eq(tables_new(&s->maps, budget_mb, s->helper, &s->t), 0);
	cr_assert_not_null(s->t);
}

void tables_fixture_init(struct tables_fixture *s, uint32_t budget_mb)
{
	const struct helper_options o = {.timeout_ms = 3000};

	memset(s, 0, sizeof(*s));
	int inner = make_map(BPF_MAP_TYPE_ARRAY, "slab", 4, TABLE_SLAB_SIZE, 1, BPF_F_MMAPABLE, -1);

	s->maps.slabs =
		make_map(BPF_MAP_TYPE_ARRAY_OF_MAPS, "slabs", 4, 4, TABLE_SLABS_MAX, 0, inner);
	(void)close(inner);
	s->maps.dirs =
		make_map(BPF_MAP_TYPE_ARRAY, "dirs", 4, 4, TABLE_DIRS_MAX, BPF_F_MMAPABLE, -1);
	s->maps.rules = make_map(BPF_MAP_TYPE_ARRAY, "rules", 4, sizeof(struct unwind_rule),
		TABLE_RULES_MAX, BPF_F_MMAPABLE, -1);
	s->maps.procs = make_map(BPF_MAP_TYPE_HASH, "procs", sizeof(struct process_key),
		sizeof(struct table_process), TABLE_PROCESSES_MAX, 0, -1);
	s->maps.slab_used = make_map(
		BPF_MAP_TYPE_ARRAY, "slab_used", 4, 4, TABLE_SLABS_MAX, BPF_F_MMAPABLE, -1);
	s->dirs = map_memory(s->maps.dirs, TABLE_DIRS_MAX * sizeof(*s->dirs));
	s->rules = map_memory(s->maps.rules, TABLE_RULES_MAX * sizeof(*s->rules));
	s->slab_used = map_memory(s->maps.slab_used, TABLE_SLABS_MAX * sizeof(*s->slab_used));
	cr_assert_eq(helper_new(&o, &s->helper), 0);
	tables_fixture_again(s, budget_mb);
	s->self = tables_fixture_key(getpid());
}

void tables_fixture_done(struct tables_fixture *s)
{
	tables_free(s->t);
	helper_free(s->helper);
}

/* --- what a program does --- */

static void read_slab(const struct tables_fixture *s, uint32_t ref, void *ret, size_t size)
{
	static uint8_t bytes[TABLE_SLAB_SIZE];
	uint32_t slab = ref >> TABLE_SLAB_SHIFT;
	uint32_t zero = 0;
	uint32_t id = 0;

	cr_assert_geq(ref, TABLE_REF_MIN);
	cr_assert_eq(bpf_map_lookup_elem(s->maps.slabs, &slab, &id), 0);
	int fd = bpf_map_get_fd_by_id(id);

	cr_assert_geq(fd, 0);
	cr_assert_eq(bpf_map_lookup_elem(fd, &zero, bytes), 0);
	(void)close(fd);
	cr_assert_leq((ref & (TABLE_SLAB_SIZE - 1)) + size, TABLE_SLAB_SIZE);
	memcpy(ret, bytes + (ref & (TABLE_SLAB_SIZE - 1)), size);
}

static struct unwind_rule look_in_chunk(
	const struct tables_fixture *s, uint32_t ref, uint32_t offset)
{
	static uint8_t bytes[TABLE_SLAB_SIZE];
	struct table_chunk head;
	uint16_t word;

	read_slab(s, ref, &head, sizeof(head));
	read_slab(s, ref, bytes, head.bytes);
	const uint8_t *blocks = bytes + sizeof(head);
	const uint8_t *rule_map = blocks + 2 * (TABLE_BLOCKS + 1);
	const uint8_t *offsets = rule_map + 2 * (size_t)head.rule_count;
	const uint8_t *ids = offsets + 2 * (size_t)head.row_count;
	uint16_t row, last;

	memcpy(&row, blocks + 2 * (offset >> TABLE_BLOCK_SHIFT), 2);
	memcpy(&last, blocks + 2 * (offset >> TABLE_BLOCK_SHIFT) + 2, 2);
	for (uint16_t next = row; next <= last; next++) {
		memcpy(&word, offsets + 2 * (size_t)next, 2);
		if (word <= offset)
			row = next;
	}
	if (head.rule_count > 256)
		memcpy(&word, ids + 2 * (size_t)row, 2);
	else
		word = ids[row];
	cr_assert_lt(word, head.rule_count);
	memcpy(&word, rule_map + 2 * (size_t)word, 2);
	cr_assert_lt(word, TABLE_RULES_MAX);
	return s->rules[word];
}

struct tables_found tables_fixture_look_up(
	const struct tables_fixture *s, const struct process_key *key, uint64_t pc)
{
	static struct table_mapping mappings[TABLE_MAPPINGS_MAX];
	struct tables_found f = {0};

	f.is_known = bpf_map_lookup_elem(s->maps.procs, key, &f.process) == 0;
	if (f.is_known && f.process.count > 0)
		read_slab(s, f.process.list, mappings, f.process.count * sizeof(*mappings));
	for (uint32_t i = 0; f.is_known && i < f.process.count; i++) {
		f.mapping = mappings[i];
		f.is_mapped = pc >= f.mapping.start && pc < f.mapping.end;
		if (f.is_mapped)
			break;
	}
	if (!f.is_mapped || f.mapping.dir == 0)
		return f;
	uint64_t vaddr = pc - f.mapping.bias;
	uint64_t chunk = (vaddr >> TABLE_CHUNK_SHIFT) - f.mapping.first_chunk;

	if (chunk >= f.mapping.chunk_count)
		return f;
	f.dir = f.mapping.dir + (uint32_t)chunk;
	cr_assert_lt(f.dir, TABLE_DIRS_MAX);
	f.ref = s->dirs[f.dir];
	if (f.ref >= TABLE_REF_MIN)
		f.rule = look_in_chunk(s, f.ref, (uint32_t)vaddr & 0xffff);
	return f;
}

/* As a program and the thread that serves it: asks until nothing is missing. */
struct tables_found tables_fixture_find(
	struct tables_fixture *s, const struct process_key *key, uint64_t pc)
{
	struct tables_found f = {0};

	for (int round = 0; round < 8; round++) {
		struct table_miss m = {.process = *key, .pc = pc};

		f = tables_fixture_look_up(s, key, pc);
		if (!f.is_known) {
			m.kind = TABLE_MISS_PROCESS;
		} else if (!f.is_mapped) {
			if (loop_now_ns() < f.process.final_until_ns)
				return f;
			m.kind = TABLE_MISS_MAPPING;
		} else if (f.dir != 0 && f.ref <= TABLE_WANTED) {
			m.kind = TABLE_MISS_CHUNK;
			m.dir = f.dir;
			m.chunk = (uint32_t)((pc - f.mapping.bias) >> TABLE_CHUNK_SHIFT);
			s->dirs[f.dir] = TABLE_WANTED;
		} else {
			return f;
		}
		(void)tables_miss(s->t, &m);
	}
	cr_assert_fail("still missing after 8 rounds");
	return f;
}

struct tables_stats tables_fixture_stats(const struct tables_fixture *s)
{
	struct tables_stats st;

	tables_stats(s->t, &st);
	return st;
}

/* As if nothing had been used for long. */
void tables_fixture_age_slabs(struct tables_fixture *s)
{
	memset(s->slab_used, 0, TABLE_SLABS_MAX * sizeof(*s->slab_used));
	for (size_t i = 0; i < TABLE_SLABS_MAX; i++)
		s->t->slabs.slabs[i].used_s = 0;
}

/* --- files of our own --- */

static char dir[] = "/tmp/tables_test.XXXXXX";
static bool has_dir;

/* The executable mapping of the C library. */
static struct maps_region libc_region(struct maps *m)
{
	_cleanup_(closep) int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(maps_read_fd(m, fd), 0);
	struct maps_region *r = maps_find(m, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));

	cr_assert_not_null(r);
	return *r;
}

void tables_copy_make(struct tables_copy *c, int number)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	struct maps_region r = libc_region(&m);
	if (!has_dir)
		cr_assert_not_null(mkdtemp(dir));
	has_dir = true;
	(void)mkdir(dir, 0700); /* or it is there */
	(void)snprintf(c->path, sizeof(c->path), "%s/%d.so", dir, number);
	cr_assert_eq(file_copy(maps_path(&m, &r), c->path, 0644), 0);
	c->size = r.end - r.start;
	c->code = NULL;
}

void tables_copy_map(struct tables_copy *c)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	struct maps_region r = libc_region(&m);
	_cleanup_(closep) int fd = open(c->path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	c->code = mmap(NULL, c->size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)r.offset);
	cr_assert_neq((void *)c->code, MAP_FAILED);
}

void tables_copy_done(struct tables_copy *c)
{
	if (c->code)
		(void)munmap(c->code, c->size);
	(void)unlink(c->path);
	(void)rmdir(dir);
}

/* What the compiler says of a byte of a file at vaddr; cfa NONE when nothing. */
static struct unwind_rule compiled_rule(const char *path, uint64_t vaddr)
{
	static struct cfi_chunk chunk;
	struct unwind_rule rule = {0};
	const char *why = NULL;
	struct cfi *cfi = NULL;
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(cfi_open(fd, &why, &cfi), 0, "%s: %s", path, why);
	cr_assert_eq(cfi_compile(cfi, vaddr >> TABLE_CHUNK_SHIFT, &chunk), 0);
	for (size_t i = 0; i < chunk.row_count; i++)
		if (chunk.rows[i].offset <= (vaddr & 0xffff))
			rule = chunk.rules[chunk.rows[i].rule];
	cfi_free(cfi);
	if (rule.cfa == UNWIND_CFA_NONE || rule.cfa == UNWIND_CFA_END)
		rule = (struct unwind_rule){.cfa = rule.cfa};
	return rule;
}

void tables_fixture_expect_compiled(const struct tables_found *f, const char *path, uint64_t pc)
{
	struct unwind_rule want = compiled_rule(path, pc - f->mapping.bias);

	cr_assert(f->is_mapped);
	if (f->ref == TABLE_NO_CFI) {
		cr_assert_eq(want.cfa, UNWIND_CFA_NONE);
		return;
	}
	cr_assert_geq(f->ref, TABLE_REF_MIN, "%s +%llx: %u", path,
		(unsigned long long)(pc - f->mapping.bias), f->ref);
	cr_assert_eq(memcmp(&f->rule, &want, sizeof(want)), 0, "%s +%llx", path,
		(unsigned long long)(pc - f->mapping.bias));
}
