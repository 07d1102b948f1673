/*
 * tables: the whole chain without programs. Maps as the programs have them are made here, misses are
 * said by hand, and what a program would then find is looked up by the path that bpf/table.h
 * describes and compared with what the compiler says of the file. The helper is this test program
 * under another argv[1] (symbolize_test.c).
 */
#include "agent/tables.h"

#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/cfi.h"
#include "agent/maps.h"
#include "agent/tables_internal.h"
#include "base/def.h"
#include "base/file.h"
#include "base/loop.h"

enum { BUDGET_MB = 24 };

struct setting {
	struct tables_maps maps;
	struct helper *helper;
	struct tables *t;
	uint32_t *dirs;
	struct unwind_rule *rules;
	uint32_t *slab_used;
	struct process_key self;
};

static int make_map(enum bpf_map_type type, const char *name, size_t key, size_t value,
	size_t entries, uint32_t flags, int inner)
{
	LIBBPF_OPTS(bpf_map_create_opts, o, .map_flags = flags);

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

static uint64_t start_of(pid_t pid)
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

static struct process_key key_of(pid_t pid)
{
	return (struct process_key){.tgid = (uint32_t)pid, .start_ns = start_of(pid), .exec_id = 3};
}

static void tables_again(struct setting *s, uint32_t budget_mb)
{
	tables_free(s->t);
	s->t = NULL;
	memset(s->dirs, 0, TABLE_DIRS_MAX * sizeof(*s->dirs));
	cr_assert_eq(tables_new(&s->maps, budget_mb, s->helper, &s->t), 0);
	cr_assert_not_null(s->t);
}

static void setting_init(struct setting *s, uint32_t budget_mb)
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
	tables_again(s, budget_mb);
	s->self = key_of(getpid());
}

static void setting_done(struct setting *s)
{
	tables_free(s->t);
	helper_free(s->helper);
}

/* --- what a program does --- */

struct found {
	struct table_process process;
	struct table_mapping mapping;
	uint32_t dir; /* index of the directory entry; 0: the mapping has none for this pc */
	uint32_t ref;
	struct unwind_rule rule; /* when ref is a place */
	bool is_known, is_mapped;
};

static void read_slab(const struct setting *s, uint32_t ref, void *ret, size_t size)
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

static struct unwind_rule look_in_chunk(const struct setting *s, uint32_t ref, uint32_t offset)
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

static struct found look_up(const struct setting *s, const struct process_key *key, uint64_t pc)
{
	static struct table_mapping mappings[TABLE_MAPPINGS_MAX];
	struct found f = {0};

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
static struct found find(struct setting *s, const struct process_key *key, uint64_t pc)
{
	struct found f = {0};

	for (int round = 0; round < 8; round++) {
		struct table_miss m = {.process = *key, .pc = pc};

		f = look_up(s, key, pc);
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

static struct tables_stats stats_of(const struct setting *s)
{
	struct tables_stats st;

	tables_stats(s->t, &st);
	return st;
}

/* As if nothing had been used for long. */
static void age_slabs(struct setting *s)
{
	memset(s->slab_used, 0, TABLE_SLABS_MAX * sizeof(*s->slab_used));
	for (size_t i = 0; i < TABLE_SLABS_MAX; i++)
		s->t->slabs.slabs[i].used_s = 0;
}

/* --- files of our own --- */

static char dir[] = "/tmp/tables_test.XXXXXX";
static bool has_dir;

struct copy {
	char path[64];
	uint8_t *code; /* mapped executable segment; NULL: not mapped */
	size_t size;
};

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

static void copy_make(struct copy *c, int number)
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

static void copy_map(struct copy *c)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	struct maps_region r = libc_region(&m);
	_cleanup_(closep) int fd = open(c->path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	c->code = mmap(NULL, c->size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)r.offset);
	cr_assert_neq((void *)c->code, MAP_FAILED);
}

static void copy_done(struct copy *c)
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

static void expect_compiled(const struct found *f, const char *path, uint64_t pc)
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

/* --- tests --- */

Test(tables, rules_of_our_own_code_are_those_the_compiler_says)
{
	enum { PCS = 24 };
	struct setting s;
	_cleanup_(closep) int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	_cleanup_(maps_done) struct maps m;
	size_t looked = 0;

	maps_init(&m);
	cr_assert_eq(maps_read_fd(&m, fd), 0);
	setting_init(&s, BUDGET_MB);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_region *r = &m.regions[i];
		const char *path = maps_path(&m, r);

		if (r->kind != MAPS_FILE)
			continue;
		for (uint64_t k = 0; k < PCS; k++) {
			uint64_t pc = r->start + (r->end - r->start - 1) * k / PCS;
			struct found f = find(&s, &s.self, pc);

			if (f.dir == 0)
				continue; /* the end of the segment's last page */
			expect_compiled(&f, path, pc);
			looked++;
		}
	}
	cr_assert_gt(looked, 5 * PCS);
	struct tables_stats st = stats_of(&s);

	cr_assert_eq(st.files_failed, 0);
	cr_assert_eq(st.chunks_broken, 0);
	cr_assert_eq(st.processes, 1);
	cr_assert_eq(st.evictions, 0);
	setting_done(&s);
}

Test(tables, vdso_has_rules)
{
	struct setting s;
	struct found f;
	size_t places = 0;

	setting_init(&s, BUDGET_MB);
	f = find(&s, &s.self, getauxval(AT_SYSINFO_EHDR));
	cr_assert(f.is_mapped);
	cr_assert_eq(f.mapping.bias, getauxval(AT_SYSINFO_EHDR));
	places += f.ref >= TABLE_REF_MIN;
	cr_assert_eq(places, 1);
	setting_done(&s);
}

Test(tables, generated_code_is_said_to_be_generated)
{
	struct setting s;
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(code, MAP_FAILED);
	setting_init(&s, BUDGET_MB);
	struct found f = find(&s, &s.self, (uintptr_t)code);

	cr_assert(f.is_mapped);
	cr_assert_eq(f.mapping.flags, TABLE_MAPPING_ANON);
	cr_assert_eq(f.mapping.dir, 0);
	setting_done(&s);
}

Test(tables, library_that_was_loaded_late_is_found_at_its_first_miss)
{
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	(void)find(&s, &s.self, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
	copy_make(&c, 1);
	copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct found f = find(&s, &s.self, pc);

	expect_compiled(&f, c.path, pc);
	copy_done(&c);
	setting_done(&s);
}

Test(tables, address_that_is_nowhere_is_asked_for_ever_more_rarely)
{
	struct setting s;
	uint64_t backoff_ns = 0;

	setting_init(&s, BUDGET_MB);
	for (int i = 0; i < 4; i++) {
		struct found f = find(&s, &s.self, 0x1000);

		cr_assert_not(f.is_mapped);
		cr_assert_gt(s.t->processes[0].backoff_ns, backoff_ns);
		cr_assert_lt(s.t->processes[0].backoff_ns, NSEC_PER_SEC);
		backoff_ns = s.t->processes[0].backoff_ns;
		/* What comes before the time is over reads nothing. */
		s.t->processes[0].final_until_ns = UINT64_MAX;
		struct table_miss m = {.process = s.self, .pc = 0x1000, .kind = TABLE_MISS_MAPPING};
		cr_assert(tables_miss(s.t, &m));
		struct found again = look_up(&s, &s.self, 0x1000);
		cr_assert_eq(again.process.generation, f.process.generation);
		/* Its time has come. */
		s.t->processes[0].final_until_ns = 0;
		cr_assert(tables_miss(s.t, &m));
		again = look_up(&s, &s.self, 0x1000);
		cr_assert_gt(again.process.generation, f.process.generation);
		cr_assert_gt(again.process.final_until_ns, loop_now_ns());
		s.t->processes[0].final_until_ns = 0;
		cr_assert_eq(tables_show_process(s.t, &s.t->processes[0]), 0);
	}
	setting_done(&s);
}

Test(tables, truncated_file_is_broken_and_harms_nothing_else)
{
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	copy_make(&c, 2);
	copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	cr_assert_eq(truncate(c.path, 8192), 0);
	struct found f = find(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_BROKEN);
	f = find(&s, &s.self, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	cr_assert_eq(helper_restarts(s.helper), 0);
	copy_done(&c);
	setting_done(&s);
}

Test(tables, file_replaced_in_place_is_not_believed_for_what_was_not_built)
{
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	copy_make(&c, 3);
	copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct found f = find(&s, &s.self, pc);

	expect_compiled(&f, c.path, pc);
	_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
	cr_assert_eq(pwrite(fd, "x", 1, 100000), 1);
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	cr_assert_eq(futimens(fd, times), 0);
	f = find(&s, &s.self, pc + 0x80000);
	cr_assert_eq(f.ref, TABLE_BROKEN);
	copy_done(&c);
	setting_done(&s);
}

Test(tables, files_with_flipped_bits_cost_no_helper_and_no_memory)
{
	enum { ROUNDS = 40, FLIPS = 200 };
	struct setting s;
	uint64_t seed = 12345;
	size_t broken = 0;

	setting_init(&s, BUDGET_MB);
	for (int round = 0; round < ROUNDS; round++) {
		struct copy c;

		copy_make(&c, 100 + round);
		_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
		struct stat st;
		cr_assert_eq(fstat(fd, &st), 0);
		for (int i = 0; i < FLIPS; i++) {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			off_t range = round % 4 == 0 ? 1024 : st.st_size;
			off_t at = 16 + (off_t)((seed >> 20) % (uint64_t)(range - 16));

			cr_assert_eq(pwrite(fd, &seed, 1, at), 1);
		}
		copy_map(&c);
		for (uint64_t k = 0; k < 8; k++) {
			struct found f = find(&s, &s.self, (uintptr_t)c.code + k * c.size / 8);

			cr_assert(f.is_mapped);
			broken += f.ref == TABLE_BROKEN;
		}
		copy_done(&c);
	}
	cr_assert_gt(broken, 0);
	cr_assert_eq(helper_restarts(s.helper), 0);
	cr_assert_leq(stats_of(&s).bytes, stats_of(&s).budget_bytes);
	setting_done(&s);
}

Test(tables, helper_killed_while_idle_costs_no_chunk)
{
	struct setting s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");

	setting_init(&s, BUDGET_MB);
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};
	cr_assert(tables_miss(s.t, &m));
	siginfo_t info;
	pid_t pid = helper_pid(s.helper);

	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	struct found f = find(&s, &s.self, pc);

	cr_assert_geq(f.ref, TABLE_REF_MIN);
	cr_assert_eq(helper_restarts(s.helper), 1);
	setting_done(&s);
}

Test(tables, helper_that_hangs_costs_one_file)
{
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	copy_make(&c, 4);
	copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	cr_assert_eq(kill(helper_pid(s.helper), SIGSTOP), 0);
	struct found f = find(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_BROKEN);
	f = find(&s, &s.self, pc + 0x80000);
	cr_assert_eq(f.ref, TABLE_BROKEN, "given to the helper again");
	pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	f = find(&s, &s.self, pc);
	cr_assert_geq(f.ref, TABLE_REF_MIN, "another file suffers");
	copy_done(&c);
	setting_done(&s);
}

Test(tables, five_hundred_forks_have_one_list_between_them)
{
	enum { FORKS = 500 };
	static pid_t pids[FORKS];
	struct setting s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");

	setting_init(&s, BUDGET_MB);
	struct found first = find(&s, &s.self, pc);
	struct tables_stats before = stats_of(&s);

	for (int i = 0; i < FORKS; i++) {
		pids[i] = fork();
		cr_assert_geq(pids[i], 0);
		if (pids[i] == 0) {
			(void)pause();
			_exit(0);
		}
		struct process_key key = key_of(pids[i]);
		struct found f = find(&s, &key, pc);

		cr_assert_eq(f.process.list, first.process.list);
		cr_assert_eq(f.ref, first.ref);
	}
	struct tables_stats after = stats_of(&s);

	cr_assert_eq(after.processes, FORKS + 1);
	cr_assert_eq(after.bytes, before.bytes);
	cr_assert_eq(after.mappings, before.mappings);
	cr_assert_eq(after.files, before.files);
	for (int i = 0; i < FORKS; i++) {
		cr_assert_eq(kill(pids[i], SIGKILL), 0);
		cr_assert_eq(waitpid(pids[i], NULL, 0), pids[i]);
	}
	tables_tick(s.t);
	cr_assert_eq(stats_of(&s).processes_gone, FORKS);
	cr_assert_eq(s.t->process_count, 1);
	struct process_key gone = {.tgid = (uint32_t)pids[0]};
	struct table_process value;

	cr_assert_eq(bpf_map_lookup_elem(s.maps.procs, &gone, &value), -ENOENT);
	cr_assert(look_up(&s, &s.self, pc).is_mapped, "the list went with the forks");
	setting_done(&s);
}

Test(tables, process_with_five_thousand_mappings_keeps_its_libraries)
{
	enum { PAGES = 10000 };
	struct setting s;
	uint8_t *jit = mmap(NULL, PAGES * 4096UL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq((void *)jit, MAP_FAILED);
	for (size_t i = 0; i < PAGES; i += 2)
		cr_assert_eq(mprotect(jit + i * 4096, 4096, PROT_READ | PROT_EXEC), 0);
	setting_init(&s, BUDGET_MB);
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct found f = find(&s, &s.self, pc);

	cr_assert_leq(f.process.count, TABLE_MAPPINGS_MAX);
	cr_assert_gt(f.process.count, TABLE_MAPPINGS_MAX * 9 / 10);
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	f = look_up(&s, &s.self, (uintptr_t)jit);
	cr_assert_eq(f.mapping.flags, TABLE_MAPPING_ANON);
	(void)munmap(jit, PAGES * 4096UL);
	setting_done(&s);
}

Test(tables, budget_of_a_megabyte_holds_and_what_was_evicted_comes_back_right)
{
	enum { COPIES = 24, PCS = 20, ROUNDS = 2 };
	static struct copy copies[COPIES];
	struct setting s;

	for (int i = 0; i < COPIES; i++) {
		copy_make(&copies[i], 200 + i);
		copy_map(&copies[i]);
	}
	setting_init(&s, 1);
	for (size_t i = 0; i < (size_t)ROUNDS * COPIES; i++) {
		const struct copy *c = &copies[i % COPIES];

		age_slabs(&s);
		for (size_t k = 0; k < PCS; k++) {
			uint64_t pc = (uintptr_t)c->code + k * c->size / PCS + 0x123;
			struct found f = find(&s, &s.self, pc);

			cr_assert_leq(stats_of(&s).bytes, 1 << 20);
			if (f.ref == TABLE_FULL)
				continue; /* its own neighbours are in use */
			expect_compiled(&f, c->path, pc);
		}
	}
	cr_assert_gt(stats_of(&s).evictions, 5);
	cr_assert_gt(stats_of(&s).chunks, 10);
	for (int i = 0; i < COPIES; i++)
		copy_done(&copies[i]);
	setting_done(&s);
}

Test(tables, everything_in_use_is_full_and_asked_for_again_when_there_is_room)
{
	enum { COPIES = 24, PCS = 16 };
	static struct copy copies[COPIES];
	struct setting s;
	struct found f = {0};
	uint64_t pc = 0;

	for (int i = 0; i < COPIES; i++) {
		copy_make(&copies[i], 300 + i);
		copy_map(&copies[i]);
	}
	setting_init(&s, 1);
	for (size_t i = 0; f.ref != TABLE_FULL && i < (size_t)COPIES * PCS; i++) {
		const struct copy *c = &copies[i / PCS];

		pc = (uintptr_t)c->code + (i % PCS) * c->size / PCS;
		f = find(&s, &s.self, pc);
	}
	cr_assert_eq(f.ref, TABLE_FULL);
	cr_assert_eq(stats_of(&s).evictions, 0, "what is in use was evicted");
	tables_tick(s.t);
	cr_assert_eq(look_up(&s, &s.self, pc).ref, TABLE_FULL);
	age_slabs(&s);
	tables_tick(s.t);
	f = find(&s, &s.self, pc);
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	for (int i = 0; i < COPIES; i++)
		copy_done(&copies[i]);
	setting_done(&s);
}

Test(tables, what_was_saved_is_there_before_the_first_miss)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 20);
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	copy_make(&c, 5);
	copy_map(&c);
	uint64_t in_copy = (uintptr_t)c.code + 0x5000;

	(void)find(&s, &s.self, pc);
	(void)find(&s, &s.self, in_copy);
	cr_assert_eq(tables_save(s.t, &text), 0);
	_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	cr_assert_eq(futimens(fd, times), 0);
	tables_again(&s, BUDGET_MB);
	tables_warm(s.t, text.data, text.size);
	cr_assert_geq(look_up(&s, &s.self, pc).ref, TABLE_REF_MIN);
	cr_assert_eq(
		look_up(&s, &s.self, in_copy).ref, TABLE_NONE, "a file that changed is another");
	cr_assert_eq(stats_of(&s).misses, 0);
	copy_done(&c);
	setting_done(&s);
}

Test(tables, no_text_can_do_more_than_warm_nothing)
{
	static const char *const texts[] = {
		"",
		"\n\n\n",
		"process",
		"process 0 0 0\nprocess 1 1 1\nprocess 4294967296 1 1\n",
		"process 99999999999999999999 1 1\n",
		"file 1 2 3 4 5 6\n",
		"chunk 0 18446744073709551615\nchunk 1 1\n",
		"file 0 0 0 0 0\nchunk 0 4294967295\nchunk 4294967295 1\n",
		"process -1 -1 -1\n",
	};
	char long_line[400];
	struct setting s;

	setting_init(&s, BUDGET_MB);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		tables_warm(s.t, texts[i], strlen(texts[i]));
	memset(long_line, ' ', sizeof(long_line));
	tables_warm(s.t, long_line, sizeof(long_line));
	cr_assert_eq(stats_of(&s).chunks, 0);
	cr_assert_eq(s.t->fd_count, 1, "files were opened");
	setting_done(&s);
}

Test(tables, an_exec_replaces_what_its_process_was)
{
	struct setting s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct process_key older = {0};

	setting_init(&s, BUDGET_MB);
	older = s.self;
	older.exec_id--;
	cr_assert(find(&s, &older, pc).is_mapped);
	cr_assert(find(&s, &s.self, pc).is_mapped);
	cr_assert_not(look_up(&s, &older, pc).is_known);
	/* A record of the older image that waited is answered, but not with the newer's mappings. */
	struct table_miss m = {.process = older, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	struct found f = look_up(&s, &older, pc);
	cr_assert(f.is_known);
	cr_assert_eq(f.process.count, 0);
	cr_assert_eq(f.process.final_until_ns, UINT64_MAX);
	cr_assert(look_up(&s, &s.self, pc).is_mapped);
	setting_done(&s);
}

Test(tables, process_that_is_gone_is_answered_and_forgotten)
{
	struct setting s;
	struct process_key key = {.tgid = 1, .start_ns = 1, .exec_id = 1};
	struct table_miss m = {.process = key, .pc = 1, .kind = TABLE_MISS_PROCESS};

	setting_init(&s, BUDGET_MB);
	m.process.start_ns = start_of(1) + 1000 * NSEC_PER_SEC; /* no such init */
	cr_assert(tables_miss(s.t, &m));
	cr_assert(look_up(&s, &m.process, 1).is_known);
	tables_tick(s.t);
	cr_assert_not(look_up(&s, &m.process, 1).is_known);
	setting_done(&s);
}

Test(tables, chunk_whose_record_was_lost_is_asked_for_again)
{
	struct setting s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct table_miss m = {.process = {0}, .pc = pc, .kind = TABLE_MISS_PROCESS};

	setting_init(&s, BUDGET_MB);
	m.process = s.self;
	cr_assert(tables_miss(s.t, &m));
	struct found f = look_up(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_NONE);
	s.dirs[f.dir] = TABLE_WANTED;
	tables_tick(s.t);
	cr_assert_eq(look_up(&s, &s.self, pc).ref, TABLE_NONE);
	setting_done(&s);
}

Test(tables, chunk_of_a_process_that_just_ended_is_still_built)
{
	struct setting s;
	struct copy c;

	setting_init(&s, BUDGET_MB);
	copy_make(&c, 6);
	copy_map(&c); /* the child inherits it */
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	struct process_key key = key_of(pid);
	struct table_miss m = {.process = key, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	struct found f = look_up(&s, &key, pc);

	cr_assert_eq(f.ref, TABLE_NONE);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
	tables_tick(s.t);
	m.kind = TABLE_MISS_CHUNK;
	m.dir = f.dir;
	m.chunk = (uint32_t)((pc - f.mapping.bias) >> TABLE_CHUNK_SHIFT);
	cr_assert(tables_miss(s.t, &m));
	cr_assert_geq(s.dirs[f.dir], TABLE_REF_MIN);
	/* Then the descriptor goes: a deleted file is not kept on disk. */
	size_t before = s.t->fd_count;

	for (int i = 0; i < 4; i++)
		tables_tick(s.t);
	cr_assert_lt(s.t->fd_count, before);
	copy_done(&c);
	setting_done(&s);
}
