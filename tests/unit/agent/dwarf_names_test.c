/* dwarf_names: inlined functions and lines of programs that compilers have just made. */
#include "agent/dwarf_names.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>

#include "base/def.h"
#include "dwarf_fixture.h"

struct setting {
	struct dwarf_fixture fixture;
	struct dwarf_names *d;
	struct names names;
	const char *why;
};

static void setting_done(struct setting *t)
{
	dwarf_names_free(t->d);
	names_done(&t->names);
	dwarf_fixture_done(&t->fixture);
}

static int open_file(struct setting *t, const char *name)
{
	int fd = dwarf_fixture_open(&t->fixture, name);
	int r = dwarf_names_open(fd, -1, &t->why, &t->d);

	if (r < 0)
		closep(&fd);
	return r;
}

static void setting_init(struct setting *t, const char *command)
{
	*t = (struct setting){0};
	names_init(&t->names);
	dwarf_fixture_make(&t->fixture, command);
	cr_assert_eq(open_file(t, "f.so"), 0, "%s: %s", command, t->why);
}

static int find(struct setting *t, uint64_t vaddr, bool with_lines)
{
	names_reset(&t->names);
	return dwarf_names_find(t->d, vaddr, with_lines, &t->names);
}

static bool is_of_source(const struct names *n, size_t i)
{
	static const char name[] = "dwarf_fixture_source.cpp";
	size_t size = sizeof(name) - 1;
	const struct names_frame *f = &n->frames[i];

	return f->file_size >= size &&
	       memcmp(names_file(n, i) + f->file_size - size, name, size) == 0;
}

/* Names and order are right at every address of outie(), and the whole chain is at some. */
static void expect_chains(struct setting *t, const char *command)
{
	const struct dwarf_fixture *f = &t->fixture;
	const struct names *n = &t->names;
	size_t whole = 0;

	for (uint64_t at = f->start; at < f->start + f->size; at++) {
		cr_assert_eq(find(t, at, true), 0, "%s: %#llx", command, (unsigned long long)at);
		cr_assert_geq(n->count, 1);
		cr_assert_eq(n->start, f->start);
		cr_assert_eq(n->size, f->size);
		cr_assert(dwarf_fixture_is(n, n->count - 1, "outie"), "%s", command);
		if (n->count == 1)
			continue;
		cr_assert_leq(n->count, 3);
		cr_assert(dwarf_fixture_is(n, n->count - 2, "fixture::worker::middle") ||
				  dwarf_fixture_is(
					  n, n->count - 2, "fixture::worker::middle() const"),
			"%s: %s", command, names_name(n, n->count - 2));
		cr_assert_eq(n->frames[n->count - 1].line, f->outie, "%s", command);
		if (n->count == 2)
			continue;
		cr_assert(dwarf_fixture_is(n, 0, "fixture::innie"), "%s: %s", command,
			names_name(n, 0));
		cr_assert_eq(n->frames[1].line, f->middle);
		for (size_t i = 0; i < 3; i++)
			cr_assert(is_of_source(n, i), "%s", command);
		whole += n->frames[0].line == f->innie;
	}
	cr_assert_gt(whole, 0, "%s: nowhere the whole chain", command);
}

static void expect_of(const char *command)
{
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, command);
	expect_chains(&t, command);
}

#define LIBRARY " -O3 -fPIC -shared -o $so $source"

Test(dwarf_names, b8_inlined_functions_come_innermost_first, .timeout = 300)
{
	expect_of("g++ -g -gdwarf-5" LIBRARY);
	expect_of("g++ -g -gdwarf-4" LIBRARY);
	expect_of("g++ -g -gdwarf-5 -gz=zlib" LIBRARY);
	expect_of("g++ -g -gdwarf-5 -fdebug-types-section" LIBRARY);
	expect_of("g++ -g1 -gdwarf-5" LIBRARY);
}

Test(dwarf_names, b8_clang_writes_no_aranges_and_is_read_likewise, .timeout = 300)
{
	struct dwarf_fixture f;
	bool has_clang = dwarf_fixture_try(&f, "clang++ -g -gdwarf-5" LIBRARY);

	dwarf_fixture_done(&f);
	if (!has_clang)
		cr_skip_test("SKIP: there is no clang++");
	expect_of("clang++ -g -gdwarf-5" LIBRARY);
	expect_of("clang++ -g -gdwarf-4 -ffunction-sections" LIBRARY);
}

Test(dwarf_names, without_lines_an_address_has_its_functions_beginnings, .timeout = 60)
{
	_cleanup_(setting_done) struct setting t;
	uint64_t at;

	setting_init(&t, "g++ -g" LIBRARY);
	for (at = t.fixture.start; at < t.fixture.start + t.fixture.size; at++)
		if (find(&t, at, false) == 0 && t.names.count == 3)
			break;
	cr_assert_eq(t.names.count, 3);
	for (size_t i = 0; i < 3; i++) {
		cr_assert_eq(t.names.frames[i].line, 0);
		cr_assert_gt(t.names.frames[i].start_line, 0);
		cr_assert(is_of_source(&t.names, i));
	}
	cr_assert_lt(t.names.frames[0].start_line, t.fixture.innie);
	cr_assert_gt(t.names.frames[2].start_line, t.fixture.middle);
}

Test(dwarf_names, b15_without_the_dwo_there_are_lines_and_no_names, .timeout = 60)
{
	_cleanup_(setting_done) struct setting t;
	size_t lines = 0;

	setting_init(&t, "cp $source $dir/f.cpp && cd $dir && "
			 "g++ -g -gdwarf-5 -gsplit-dwarf -O3 -fPIC -shared -o f.so f.cpp && "
			 "rm -f *.dwo");
	for (uint64_t at = t.fixture.start; at < t.fixture.start + t.fixture.size; at++) {
		int r = find(&t, at, true);

		cr_assert(r == 0 || r == -ENOENT);
		if (r < 0)
			continue;
		cr_assert_eq(t.names.count, 1);
		cr_assert_eq(t.names.frames[0].name_size, 0);
		lines += t.names.frames[0].line == t.fixture.innie;
	}
	cr_assert_gt(lines, 0);
}

/* libdw of Debian 12 knows zlib only and says "no error"; that of Debian 13 reads it. */
Test(dwarf_names, b14_a_compression_unknown_here_is_told_apart_from_nothing, .timeout = 60)
{
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, "g++ -g" LIBRARY);
	dwarf_names_free(t.d);
	t.d = NULL;
	if (!dwarf_fixture_run(
		    &t.fixture, "objcopy --compress-debug-sections=zstd $so $dir/zstd.so"))
		cr_skip_test("SKIP: objcopy knows no zstd");
	int r = open_file(&t, "zstd.so");

	if (r == 0)
		expect_chains(&t, "zstd");
	else
		cr_assert_eq(r, -ENOTSUP, "%d: %s", r, t.why);
	cr_assert(dwarf_fixture_run(&t.fixture, "strip -o $dir/none.so $so"));
	dwarf_names_free(t.d);
	t.d = NULL;
	cr_assert_eq(open_file(&t, "none.so"), -ENODATA);
}

Test(dwarf_names, b10_compressed_sections_above_the_limit_are_refused, .timeout = 120)
{
	_cleanup_(setting_done) struct setting t = {0};

	names_init(&t.names);
	dwarf_fixture_make(&t.fixture,
		"{ cat $source; echo 'asm(\".pushsection .debug_macinfo;\"'; "
		"echo '\".zero 33554432; .popsection\");'; } >$dir/big.cpp; "
		"g++ -g -gz=zlib -O3 -fPIC -shared -o $so $dir/big.cpp");
	cr_assert_eq(open_file(&t, "f.so"), -EFBIG);
	cr_assert_neq(strstr(t.why, "too big"), NULL);
}

Test(dwarf_names, b9_a_unit_that_takes_too_long_is_given_up_once, .timeout = 60)
{
	_cleanup_(setting_done) struct setting t;
	uint64_t at;

	/* Time is looked at every 256 entries. */
	setting_init(&t,
		"{ cat $source; seq 1 600 | sed 's/.*/extern \"C\" int f&() { return &; }/'; } "
		">$dir/many.cpp; g++ -g -O3 -fPIC -shared -o $so $dir/many.cpp");
	at = t.fixture.start;
	dwarf_names_hurry(t.d, 0);
	cr_assert_eq(find(&t, at, true), -ETIMEDOUT);
	dwarf_names_hurry(t.d, 1000);
	cr_assert_eq(find(&t, at, true), -ETIMEDOUT, "it is remembered");
}

/* Each lookup in another unit makes libdw hold more. */
Test(dwarf_names, memory_stays_below_the_limit_and_answers_the_same, .timeout = 120)
{
	_cleanup_(setting_done) struct setting t;

	setting_init(&t, "g++ -g" LIBRARY);
	dwarf_names_shrink_always(t.d);
	expect_chains(&t, "dropped each time");
}

Test(dwarf_names, what_is_no_elf_file_is_refused)
{
	struct dwarf_names *d = NULL;
	const char *why = NULL;
	_cleanup_(closep) int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_eq(dwarf_names_open(fd, -1, &why, &d), -EBADMSG);
	cr_assert_eq(write(fd,
			     "\x7f"
			     "ELF",
			     4),
		4);
	cr_assert_eq(dwarf_names_open(fd, -1, &why, &d), -EBADMSG);
	cr_assert_not_null(why);
}
