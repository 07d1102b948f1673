/*
 * symbolize: what the helper for lines adds to names, and that its trouble costs these lines only.
 * The library is compiled here and loaded into this process; the helper is this test program, see
 * symbolize_test.c.
 */
#include "agent/symbolize.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "agent/elf_symbols.h"
#include "agent/helper.h"
#include "base/def.h"
#include "dwarf_fixture.h"

enum { FRAMES_MAX = 8, ADDRESSES_MAX = 512 };

struct setting {
	struct dwarf_fixture fixture;
	struct symbolizer *s;
	struct profile *profile;
	struct symbolizer_process self;
	uint64_t outie; /* address of the function here */
	uint32_t frames[FRAMES_MAX];
};

static void setting_done(struct setting *t)
{
	symbolizer_free(t->s);
	profile_free(t->profile);
	dwarf_fixture_done(&t->fixture);
}

static void start(struct setting *t, const struct symbolizer_options *o)
{
	symbolizer_free(t->s);
	t->s = NULL;
	cr_assert_eq(symbolizer_new(o, &t->s), 0);
}

static void setting_init(struct setting *t, const struct symbolizer_options *o, const char *command)
{
	*t = (struct setting){.self = {.tgid = (uint32_t)getpid()}};
	dwarf_fixture_make(&t->fixture, command);
	void *library = dlopen(t->fixture.path, RTLD_NOW);

	cr_assert_not_null(library, "%s", dlerror());
	t->outie = (uint64_t)(uintptr_t)dlsym(library, "outie");
	cr_assert_neq(t->outie, 0);
	cr_assert_eq(profile_new(16 << 20, &t->profile), 0);
	start(t, o);
}

static int frames_at(struct setting *t, uint64_t pc)
{
	return symbolizer_user(t->s, t->profile, &t->self, &pc, 1, false, FRAMES_MAX, t->frames);
}

static const struct frame *frame(const struct setting *t, int i)
{
	return profile_frame_at(t->profile, t->frames[i]);
}

static const char *name(const struct setting *t, int i)
{
	return profile_text(t->profile, frame(t, i)->name);
}

/* An address of outie() in all three functions; 0: none. */
static uint64_t innermost(struct setting *t)
{
	for (uint64_t pc = t->outie; pc < t->outie + t->fixture.size; pc++)
		if (frames_at(t, pc) == 3 && (frame(t, 0)->line == t->fixture.innie ||
						     frame(t, 0)->line < t->fixture.innie))
			return pc;
	return 0;
}

#define LIBRARY " -O3 -fPIC -shared -o $so $source"

Test(symbolize_lines, b8_one_address_is_a_chain_of_frames, .timeout = 60)
{
	const struct symbolizer_options o = {.lines = SYMBOLIZER_LINES_LINE};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o, "g++ -g" LIBRARY);
	cr_assert_neq(innermost(&t), 0);
	cr_assert_str_eq(name(&t, 0), "fixture::innie");
	cr_assert_eq(strncmp(name(&t, 1), "fixture::worker::middle", 23), 0);
	cr_assert_str_eq(name(&t, 2), "outie");
	cr_assert_eq(frame(&t, 1)->line, t.fixture.middle);
	cr_assert_eq(frame(&t, 2)->line, t.fixture.outie);
	for (int i = 0; i < 3; i++) {
		const char *file = profile_text(t.profile, frame(&t, i)->file);

		cr_assert_not_null(strstr(file, "dwarf_fixture_source.cpp"), "%s", file);
		cr_assert_eq(frame(&t, i)->module, frame(&t, 2)->module);
		cr_assert_eq(frame(&t, i)->address, t.fixture.start);
		cr_assert_eq(frame(&t, i)->kind, FRAME_NATIVE);
	}
	struct symbolizer_stats stats = symbolizer_stats(t.s);
	cr_assert_eq(stats.frames, stats.resolved, "each address is counted once");
	cr_assert_geq(stats.inlined, 2);
}

Test(symbolize_lines, by_function_frames_that_differ_in_the_line_are_one, .timeout = 60)
{
	const struct symbolizer_options by_function = {0};
	const struct symbolizer_options by_line = {.lines = SYMBOLIZER_LINES_LINE};
	_cleanup_(setting_done) struct setting t;
	size_t frames;

	setting_init(&t, &by_function, "g++ -g" LIBRARY);
	for (uint64_t pc = t.outie; pc < t.outie + t.fixture.size; pc++)
		cr_assert_geq(frames_at(&t, pc), 1);
	frames = profile_frame_count(t.profile);
	cr_assert_eq(frames, 3);
	start(&t, &by_line);
	for (uint64_t pc = t.outie; pc < t.outie + t.fixture.size; pc++)
		cr_assert_geq(frames_at(&t, pc), 1);
	cr_assert_gt(profile_frame_count(t.profile), frames + 3);
}

Test(symbolize_lines, frames_beyond_the_room_are_counted_and_not_written, .timeout = 60)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[2];

	setting_init(&t, &o, "g++ -g" LIBRARY);
	pcs[0] = innermost(&t);
	pcs[1] = pcs[0] + 1; /* a return address */
	t.frames[4] = UINT32_MAX;
	cr_assert_eq(symbolizer_user(t.s, t.profile, &t.self, pcs, 2, false, 4, t.frames), 6);
	cr_assert_str_eq(name(&t, 0), "fixture::innie");
	cr_assert_str_eq(name(&t, 3), "fixture::innie");
	cr_assert_eq(t.frames[4], UINT32_MAX);
}

Test(symbolize_lines, nothing_is_asked_twice, .timeout = 60)
{
	const struct symbolizer_options o = {.lines = SYMBOLIZER_LINES_LINE};
	_cleanup_(setting_done) struct setting t;
	uint64_t pcs[ADDRESSES_MAX];
	uint32_t count = 0;

	setting_init(&t, &o, "g++ -g" LIBRARY);
	for (; count < t.fixture.size && count + 1 < ADDRESSES_MAX; count++)
		pcs[count] = t.outie + count;
	pcs[count++] = t.outie - 1; /* before it, and without a name if padding */
	for (int i = 0; i < 3; i++) {
		symbolizer_user_prepare(t.s, &t.self, pcs, count, false);
		symbolizer_flush_prepare(t.s);
		(void)frames_at(&t, t.outie);
		struct symbolizer_stats stats = symbolizer_stats(t.s);

		cr_assert_eq(stats.requests, 1);
		cr_assert_eq(stats.lines_requests, 1);
	}
}

Test(symbolize_lines, b14_unreadable_debug_information_is_said_and_names_stay, .timeout = 60)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o,
		"g++ -g" LIBRARY " && { objcopy --compress-debug-sections=zstd $so || true; }");
	cr_assert_geq(frames_at(&t, t.outie), 1);
	struct symbolizer_stats stats = symbolizer_stats(t.s);
	if (stats.debug_unreadable == 0)
		cr_skip_test("SKIP: this libdw reads zstd, or objcopy does not write it");
	cr_assert_eq(stats.debug_unreadable, 1);
	cr_assert_eq(stats.lines_failed, 1);
	cr_assert_eq(stats.files_failed, 0);
	cr_assert_str_eq(name(&t, 0), "outie");
	(void)frames_at(&t, t.outie + 1);
	stats = symbolizer_stats(t.s);
	cr_assert_eq(stats.debug_unreadable, 1, "said once");
	cr_assert_eq(stats.lines_requests, 1, "asked once");
}

Test(symbolize_lines, b10_what_would_not_fit_is_refused_and_names_stay, .timeout = 120)
{
	const struct symbolizer_options o = {0};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o,
		"{ cat $source; echo 'asm(\".pushsection .debug_macinfo;\"'; "
		"echo '\".zero 268435456; .popsection\");'; } >$dir/big.cpp; "
		"g++ -g -gz=zlib -O3 -fPIC -shared -o $so $dir/big.cpp");
	cr_assert_eq(frames_at(&t, t.outie), 1);
	cr_assert_str_eq(name(&t, 0), "outie");
	struct symbolizer_stats stats = symbolizer_stats(t.s);
	cr_assert_eq(stats.lines_failed, 1);
	cr_assert_eq(stats.lines_restarts, 0, "it refused, it did not die");
}

Test(symbolize_lines, b15_without_the_dwo_a_function_has_its_symbols_name, .timeout = 60)
{
	const struct symbolizer_options o = {.lines = SYMBOLIZER_LINES_LINE};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o,
		"cp $source $dir/f.cpp && cd $dir && "
		"g++ -g -gdwarf-5 -gsplit-dwarf -O3 -fPIC -shared -o f.so f.cpp && rm -f *.dwo");
	for (uint64_t pc = t.outie; pc < t.outie + t.fixture.size; pc++) {
		cr_assert_eq(frames_at(&t, pc), 1);
		cr_assert_str_eq(name(&t, 0), "outie");
	}
}

Test(symbolize_lines, a_helper_for_lines_that_hangs_costs_the_lines, .timeout = 60)
{
	const struct symbolizer_options o = {.helper_timeout_ms = 1000};
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, &o, "g++ -g" LIBRARY);
	uint64_t pc = innermost(&t);

	cr_assert_neq(pc, 0);
	start(&t, &o);
	(void)frames_at(&t, t.outie); /* starts it */
	cr_assert_gt(symbolizer_lines_pid(t.s), 0);
	cr_assert_eq(kill(symbolizer_lines_pid(t.s), SIGSTOP), 0);
	cr_assert_eq(frames_at(&t, pc), 1);
	cr_assert_str_eq(name(&t, 0), "outie");
	cr_assert_eq(symbolizer_stats(t.s).lines_failed, 1);
	cr_assert_eq(symbolizer_stats(t.s).files_failed, 0);
	cr_assert_eq(symbolizer_stats(t.s).helper_restarts, 0);
}

static void count_named(void *data, size_t index, const struct helper_answer *a)
{
	(void)index;
	*(size_t *)data += a->frame_count > 0;
}

/* Hard case B24. The debug file is apart, so that the library that this process runs stays whole. */
Test(symbolize_lines, b24_a_file_cut_while_it_is_mapped_costs_the_lines, .timeout = 60)
{
	const struct helper_options lines = {.role = HELPER_LINES};
	const struct helper_options names = {.role = HELPER_NAMES};
	_cleanup_(dwarf_fixture_done) struct dwarf_fixture f;
	char reason[HELPER_REASON_MAX];
	struct helper *l = NULL;
	struct helper *n = NULL;
	uint32_t flags = 0;
	size_t named = 0;

	dwarf_fixture_make(&f, "echo 'int other(int x) { return x * 3; }' >$dir/o.cpp; "
			       "cd $dir; g++ -g -O3 -fPIC -c -o a.o $OLDPWD/$source; "
			       "g++ -g -O3 -fPIC -c -o b.o o.cpp; g++ -shared -o $so a.o b.o; "
			       "objcopy --only-keep-debug $so f.debug; strip -g $so");
	struct helper_file file = {.id = 1,
		.fd = dwarf_fixture_open(&f, "f.so"),
		.debug_fd = dwarf_fixture_open(&f, "f.debug"),
		.alt_fd = -1};
	uint64_t first = f.start;
	uint64_t last = f.start + f.size - 1;
	cr_assert_eq(helper_new(&lines, &l), 0);
	cr_assert_eq(helper_new(&names, &n), 0);
	cr_assert_eq(helper_ask(l, &file, 0, &first, 1, count_named, &named, reason, &flags), 0);
	cr_assert_eq(named, 1);
	cr_assert_eq(ftruncate(file.debug_fd, 0), 0);
	int r = helper_ask(
		l, &file, HELPER_WANT_LINES, &last, 1, count_named, &named, reason, &flags);
	cr_assert_eq(r, -EPIPE, "%d", r);
	cr_assert_eq(helper_ask(n, &file, 0, &first, 1, count_named, &named, reason, &flags), 0);
	cr_assert_eq(named, 2);
	helper_free(l);
	helper_free(n);
	closep(&file.fd);
	closep(&file.debug_fd);
}
