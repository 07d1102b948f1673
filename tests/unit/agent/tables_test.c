/*
 * tables: the whole chain without programs. Maps as the programs have them are made here, misses are
 * said by hand, and what a program would then find is looked up by the path that bpf/table.h
 * describes and compared with what the compiler says of the file. The helper is this test program
 * under another argv[1] (symbolize_test.c).
 */
#include <bpf/bpf.h>
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/def.h"
#include "base/loop.h"
#include "tables_fixture.h"

Test(tables, rules_of_our_own_code_are_those_the_compiler_says)
{
	enum { PCS = 24 };
	struct tables_fixture s;
	_cleanup_(closep) int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	_cleanup_(maps_done) struct maps m;
	size_t looked = 0;

	maps_init(&m);
	cr_assert_eq(maps_read_fd(&m, fd), 0);
	tables_fixture_init(&s, BUDGET_MB);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_region *r = &m.regions[i];
		const char *path = maps_path(&m, r);

		if (r->kind != MAPS_FILE)
			continue;
		for (uint64_t k = 0; k < PCS; k++) {
			uint64_t pc = r->start + (r->end - r->start - 1) * k / PCS;
			struct tables_found f = tables_fixture_find(&s, &s.self, pc);

			if (f.dir == 0)
				continue; /* the end of the segment's last page */
			tables_fixture_expect_compiled(&f, path, pc);
			looked++;
		}
	}
	cr_assert_gt(looked, 5 * PCS);
	struct tables_stats st = tables_fixture_stats(&s);

	cr_assert_eq(st.files_failed, 0);
	cr_assert_eq(st.chunks_broken, 0);
	cr_assert_eq(st.processes, 1);
	cr_assert_eq(st.evictions, 0);
	tables_fixture_done(&s);
}

Test(tables, vdso_has_rules)
{
	struct tables_fixture s;
	struct tables_found f;
	size_t places = 0;

	tables_fixture_init(&s, BUDGET_MB);
	f = tables_fixture_find(&s, &s.self, getauxval(AT_SYSINFO_EHDR));
	cr_assert(f.is_mapped);
	cr_assert_eq(f.mapping.bias, getauxval(AT_SYSINFO_EHDR));
	places += f.ref >= TABLE_REF_MIN;
	cr_assert_eq(places, 1);
	tables_fixture_done(&s);
}

Test(tables, generated_code_is_said_to_be_generated)
{
	struct tables_fixture s;
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(code, MAP_FAILED);
	tables_fixture_init(&s, BUDGET_MB);
	struct tables_found f = tables_fixture_find(&s, &s.self, (uintptr_t)code);

	cr_assert(f.is_mapped);
	cr_assert_eq(f.mapping.flags, TABLE_MAPPING_ANON);
	cr_assert_eq(f.mapping.dir, 0);
	tables_fixture_done(&s);
}

Test(tables, library_that_was_loaded_late_is_found_at_its_first_miss)
{
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	(void)tables_fixture_find(&s, &s.self, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
	tables_copy_make(&c, 1);
	tables_copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	tables_fixture_expect_compiled(&f, c.path, pc);
	tables_copy_done(&c);
	tables_fixture_done(&s);
}

Test(tables, address_that_is_nowhere_is_asked_for_ever_more_rarely)
{
	struct tables_fixture s;
	uint64_t backoff_ns = 0;

	tables_fixture_init(&s, BUDGET_MB);
	for (int i = 0; i < 4; i++) {
		struct tables_found f = tables_fixture_find(&s, &s.self, 0x1000);

		cr_assert_not(f.is_mapped);
		cr_assert_gt(s.t->processes[0].backoff_ns, backoff_ns);
		cr_assert_lt(s.t->processes[0].backoff_ns, NSEC_PER_SEC);
		backoff_ns = s.t->processes[0].backoff_ns;
		/* What comes before the time is over reads nothing. */
		s.t->processes[0].final_until_ns = UINT64_MAX;
		struct table_miss m = {.process = s.self, .pc = 0x1000, .kind = TABLE_MISS_MAPPING};
		cr_assert(tables_miss(s.t, &m));
		struct tables_found again = tables_fixture_look_up(&s, &s.self, 0x1000);
		cr_assert_eq(again.process.generation, f.process.generation);
		/* Its time has come. */
		s.t->processes[0].final_until_ns = 0;
		cr_assert(tables_miss(s.t, &m));
		again = tables_fixture_look_up(&s, &s.self, 0x1000);
		cr_assert_gt(again.process.generation, f.process.generation);
		cr_assert_gt(again.process.final_until_ns, loop_now_ns());
		s.t->processes[0].final_until_ns = 0;
		cr_assert_eq(tables_show_process(s.t, &s.t->processes[0]), 0);
	}
	tables_fixture_done(&s);
}

Test(tables, truncated_file_is_broken_and_harms_nothing_else)
{
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	tables_copy_make(&c, 2);
	tables_copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	cr_assert_eq(truncate(c.path, 8192), 0);
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_BROKEN);
	f = tables_fixture_find(&s, &s.self, (uintptr_t)dlsym(RTLD_DEFAULT, "qsort"));
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	cr_assert_eq(helper_restarts(s.helper), 0);
	tables_copy_done(&c);
	tables_fixture_done(&s);
}

Test(tables, file_replaced_in_place_is_not_believed_for_what_was_not_built)
{
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	tables_copy_make(&c, 3);
	tables_copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	tables_fixture_expect_compiled(&f, c.path, pc);
	_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
	cr_assert_eq(pwrite(fd, "x", 1, 100000), 1);
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	cr_assert_eq(futimens(fd, times), 0);
	f = tables_fixture_find(&s, &s.self, pc + 0x80000);
	cr_assert_eq(f.ref, TABLE_BROKEN);
	tables_copy_done(&c);
	tables_fixture_done(&s);
}

Test(tables, files_with_flipped_bits_cost_no_helper_and_no_memory)
{
	enum { ROUNDS = 40, FLIPS = 200 };
	struct tables_fixture s;
	uint64_t seed = 12345;
	size_t broken = 0;

	tables_fixture_init(&s, BUDGET_MB);
	for (int round = 0; round < ROUNDS; round++) {
		struct tables_copy c;

		tables_copy_make(&c, 100 + round);
		_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
		struct stat st;
		cr_assert_eq(fstat(fd, &st), 0);
		for (int i = 0; i < FLIPS; i++) {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			off_t range = round % 4 == 0 ? 1024 : st.st_size;
			off_t at = 16 + (off_t)((seed >> 20) % (uint64_t)(range - 16));

			cr_assert_eq(pwrite(fd, &seed, 1, at), 1);
		}
		tables_copy_map(&c);
		for (uint64_t k = 0; k < 8; k++) {
			struct tables_found f = tables_fixture_find(
				&s, &s.self, (uintptr_t)c.code + k * c.size / 8);

			cr_assert(f.is_mapped);
			broken += f.ref == TABLE_BROKEN;
		}
		tables_copy_done(&c);
	}
	cr_assert_gt(broken, 0);
	cr_assert_eq(helper_restarts(s.helper), 0);
	cr_assert_leq(tables_fixture_stats(&s).bytes, tables_fixture_stats(&s).budget_bytes);
	tables_fixture_done(&s);
}

Test(tables, helper_killed_while_idle_costs_no_chunk)
{
	struct tables_fixture s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");

	tables_fixture_init(&s, BUDGET_MB);
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};
	cr_assert(tables_miss(s.t, &m));
	siginfo_t info;
	pid_t pid = helper_pid(s.helper);

	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	cr_assert_geq(f.ref, TABLE_REF_MIN);
	cr_assert_eq(helper_restarts(s.helper), 1);
	tables_fixture_done(&s);
}

Test(tables, helper_that_hangs_costs_one_file)
{
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	tables_copy_make(&c, 4);
	tables_copy_map(&c);
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	struct table_miss m = {.process = s.self, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	cr_assert_eq(kill(helper_pid(s.helper), SIGSTOP), 0);
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_BROKEN);
	f = tables_fixture_find(&s, &s.self, pc + 0x80000);
	cr_assert_eq(f.ref, TABLE_BROKEN, "given to the helper again");
	pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	f = tables_fixture_find(&s, &s.self, pc);
	cr_assert_geq(f.ref, TABLE_REF_MIN, "another file suffers");
	tables_copy_done(&c);
	tables_fixture_done(&s);
}

Test(tables, five_hundred_forks_have_one_list_between_them)
{
	enum { FORKS = 500 };
	static pid_t pids[FORKS];
	struct tables_fixture s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");

	tables_fixture_init(&s, BUDGET_MB);
	struct tables_found first = tables_fixture_find(&s, &s.self, pc);
	struct tables_stats before = tables_fixture_stats(&s);

	for (int i = 0; i < FORKS; i++) {
		pids[i] = fork();
		cr_assert_geq(pids[i], 0);
		if (pids[i] == 0) {
			(void)pause();
			_exit(0);
		}
		struct process_key key = tables_fixture_key(pids[i]);
		struct tables_found f = tables_fixture_find(&s, &key, pc);

		cr_assert_eq(f.process.list, first.process.list);
		cr_assert_eq(f.ref, first.ref);
	}
	struct tables_stats after = tables_fixture_stats(&s);

	cr_assert_eq(after.processes, FORKS + 1);
	cr_assert_eq(after.bytes, before.bytes);
	cr_assert_eq(after.mappings, before.mappings);
	cr_assert_eq(after.files, before.files);
	for (int i = 0; i < FORKS; i++) {
		cr_assert_eq(kill(pids[i], SIGKILL), 0);
		cr_assert_eq(waitpid(pids[i], NULL, 0), pids[i]);
	}
	tables_tick(s.t);
	cr_assert_eq(tables_fixture_stats(&s).processes_gone, FORKS);
	cr_assert_eq(s.t->process_count, 1);
	struct process_key gone = {.tgid = (uint32_t)pids[0]};
	struct table_process value;

	cr_assert_eq(bpf_map_lookup_elem(s.maps.procs, &gone, &value), -ENOENT);
	cr_assert(
		tables_fixture_look_up(&s, &s.self, pc).is_mapped, "the list went with the forks");
	tables_fixture_done(&s);
}

Test(tables, process_with_five_thousand_mappings_keeps_its_libraries)
{
	enum { PAGES = 10000 };
	struct tables_fixture s;
	uint8_t *jit = mmap(NULL, PAGES * 4096UL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq((void *)jit, MAP_FAILED);
	for (size_t i = 0; i < PAGES; i += 2)
		cr_assert_eq(mprotect(jit + i * 4096, 4096, PROT_READ | PROT_EXEC), 0);
	tables_fixture_init(&s, BUDGET_MB);
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct tables_found f = tables_fixture_find(&s, &s.self, pc);

	cr_assert_leq(f.process.count, TABLE_MAPPINGS_MAX);
	cr_assert_gt(f.process.count, TABLE_MAPPINGS_MAX * 9 / 10);
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	f = tables_fixture_look_up(&s, &s.self, (uintptr_t)jit);
	cr_assert_eq(f.mapping.flags, TABLE_MAPPING_ANON);
	(void)munmap(jit, PAGES * 4096UL);
	tables_fixture_done(&s);
}

Test(tables, budget_of_a_megabyte_holds_and_what_was_evicted_comes_back_right)
{
	enum { COPIES = 24, PCS = 20, ROUNDS = 2 };
	static struct tables_copy copies[COPIES];
	struct tables_fixture s;

	for (int i = 0; i < COPIES; i++) {
		tables_copy_make(&copies[i], 200 + i);
		tables_copy_map(&copies[i]);
	}
	tables_fixture_init(&s, 1);
	for (size_t i = 0; i < (size_t)ROUNDS * COPIES; i++) {
		const struct tables_copy *c = &copies[i % COPIES];

		tables_fixture_age_slabs(&s);
		for (size_t k = 0; k < PCS; k++) {
			uint64_t pc = (uintptr_t)c->code + k * c->size / PCS + 0x123;
			struct tables_found f = tables_fixture_find(&s, &s.self, pc);

			cr_assert_leq(tables_fixture_stats(&s).bytes, 1 << 20);
			if (f.ref == TABLE_FULL)
				continue; /* its own neighbours are in use */
			tables_fixture_expect_compiled(&f, c->path, pc);
		}
	}
	cr_assert_gt(tables_fixture_stats(&s).evictions, 5);
	cr_assert_gt(tables_fixture_stats(&s).chunks, 10);
	for (int i = 0; i < COPIES; i++)
		tables_copy_done(&copies[i]);
	tables_fixture_done(&s);
}

Test(tables, everything_in_use_is_full_and_asked_for_again_when_there_is_room)
{
	enum { COPIES = 24, PCS = 16 };
	static struct tables_copy copies[COPIES];
	struct tables_fixture s;
	struct tables_found f = {0};
	uint64_t pc = 0;

	for (int i = 0; i < COPIES; i++) {
		tables_copy_make(&copies[i], 300 + i);
		tables_copy_map(&copies[i]);
	}
	tables_fixture_init(&s, 1);
	for (size_t i = 0; f.ref != TABLE_FULL && i < (size_t)COPIES * PCS; i++) {
		const struct tables_copy *c = &copies[i / PCS];

		pc = (uintptr_t)c->code + (i % PCS) * c->size / PCS;
		f = tables_fixture_find(&s, &s.self, pc);
	}
	cr_assert_eq(f.ref, TABLE_FULL);
	cr_assert_eq(tables_fixture_stats(&s).evictions, 0, "what is in use was evicted");
	tables_tick(s.t);
	cr_assert_eq(tables_fixture_look_up(&s, &s.self, pc).ref, TABLE_FULL);
	tables_fixture_age_slabs(&s);
	tables_tick(s.t);
	f = tables_fixture_find(&s, &s.self, pc);
	cr_assert_geq(f.ref, TABLE_REF_MIN);
	for (int i = 0; i < COPIES; i++)
		tables_copy_done(&copies[i]);
	tables_fixture_done(&s);
}

Test(tables, what_was_saved_is_there_before_the_first_miss)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 20);
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	tables_copy_make(&c, 5);
	tables_copy_map(&c);
	uint64_t in_copy = (uintptr_t)c.code + 0x5000;

	(void)tables_fixture_find(&s, &s.self, pc);
	(void)tables_fixture_find(&s, &s.self, in_copy);
	cr_assert_eq(tables_save(s.t, &text), 0);
	_cleanup_(closep) int fd = open(c.path, O_WRONLY | O_CLOEXEC);
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	cr_assert_eq(futimens(fd, times), 0);
	tables_fixture_again(&s, BUDGET_MB);
	tables_warm(s.t, text.data, text.size);
	cr_assert_geq(tables_fixture_look_up(&s, &s.self, pc).ref, TABLE_REF_MIN);
	cr_assert_eq(tables_fixture_look_up(&s, &s.self, in_copy).ref, TABLE_NONE,
		"a file that changed is another");
	cr_assert_eq(tables_fixture_stats(&s).misses, 0);
	tables_copy_done(&c);
	tables_fixture_done(&s);
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
	struct tables_fixture s;

	tables_fixture_init(&s, BUDGET_MB);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		tables_warm(s.t, texts[i], strlen(texts[i]));
	memset(long_line, ' ', sizeof(long_line));
	tables_warm(s.t, long_line, sizeof(long_line));
	cr_assert_eq(tables_fixture_stats(&s).chunks, 0);
	cr_assert_eq(s.t->fd_count, 1, "files were opened");
	tables_fixture_done(&s);
}

Test(tables, what_was_saved_of_a_process_gives_way_to_what_the_kernel_says)
{
	struct tables_fixture s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	char line[100];

	tables_fixture_init(&s, BUDGET_MB);
	(void)snprintf(line, sizeof(line), "process %u %llu %u\n", s.self.tgid,
		(unsigned long long)s.self.start_ns, s.self.exec_id + 7);
	tables_warm(s.t, line, strlen(line));
	cr_assert(tables_fixture_find(&s, &s.self, pc).is_mapped,
		"a file on disk made this process outdated for good");
	tables_fixture_done(&s);
}

Test(tables, an_exec_replaces_what_its_process_was)
{
	struct tables_fixture s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct process_key older = {0};

	tables_fixture_init(&s, BUDGET_MB);
	older = s.self;
	older.exec_id--;
	cr_assert(tables_fixture_find(&s, &older, pc).is_mapped);
	cr_assert(tables_fixture_find(&s, &s.self, pc).is_mapped);
	cr_assert_not(tables_fixture_look_up(&s, &older, pc).is_known);
	/* A record of the older image that waited is answered, but not with the newer's mappings. */
	struct table_miss m = {.process = older, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	struct tables_found f = tables_fixture_look_up(&s, &older, pc);
	cr_assert(f.is_known);
	cr_assert_eq(f.process.count, 0);
	cr_assert_eq(f.process.final_until_ns, UINT64_MAX);
	cr_assert(tables_fixture_look_up(&s, &s.self, pc).is_mapped);
	tables_fixture_done(&s);
}

Test(tables, process_that_is_gone_is_answered_and_forgotten)
{
	struct tables_fixture s;
	struct process_key key = {.tgid = 1, .start_ns = 1, .exec_id = 1};
	struct table_miss m = {.process = key, .pc = 1, .kind = TABLE_MISS_PROCESS};

	tables_fixture_init(&s, BUDGET_MB);
	m.process.start_ns = tables_fixture_start(1) + 1000 * NSEC_PER_SEC; /* no such init */
	cr_assert(tables_miss(s.t, &m));
	cr_assert(tables_fixture_look_up(&s, &m.process, 1).is_known);
	tables_tick(s.t);
	cr_assert_not(tables_fixture_look_up(&s, &m.process, 1).is_known);
	tables_fixture_done(&s);
}

Test(tables, chunk_whose_record_was_lost_is_asked_for_again)
{
	struct tables_fixture s;
	uint64_t pc = (uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct table_miss m = {.process = {0}, .pc = pc, .kind = TABLE_MISS_PROCESS};

	tables_fixture_init(&s, BUDGET_MB);
	m.process = s.self;
	cr_assert(tables_miss(s.t, &m));
	struct tables_found f = tables_fixture_look_up(&s, &s.self, pc);

	cr_assert_eq(f.ref, TABLE_NONE);
	s.dirs[f.dir] = TABLE_WANTED;
	tables_tick(s.t);
	cr_assert_eq(tables_fixture_look_up(&s, &s.self, pc).ref, TABLE_NONE);
	tables_fixture_done(&s);
}

Test(tables, chunk_of_a_process_that_just_ended_is_still_built)
{
	struct tables_fixture s;
	struct tables_copy c;

	tables_fixture_init(&s, BUDGET_MB);
	tables_copy_make(&c, 6);
	tables_copy_map(&c); /* the child inherits it */
	uint64_t pc = (uintptr_t)c.code + 0x5000;
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	struct process_key key = tables_fixture_key(pid);
	struct table_miss m = {.process = key, .pc = pc, .kind = TABLE_MISS_PROCESS};

	cr_assert(tables_miss(s.t, &m));
	struct tables_found f = tables_fixture_look_up(&s, &key, pc);

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
	tables_copy_done(&c);
	tables_fixture_done(&s);
}
