/*
 * go_pclntab: real tables of Go 1.16 to 1.26 (fixtures/go, cut down) against what Go's runtime and DWARF
 * said of the same program; and the same bytes made wrong in one place each.
 */
#include "agent/go_pclntab.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/str.h"

static int fixture_open(const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	cr_assert_geq(fd, 0, "%s: run from the top of the tree", name);
	return fd;
}

static struct go_pclntab *fixture_table(const char *name)
{
	_cleanup_(closep) int fd = fixture_open(name);
	struct go_pclntab *g = NULL;
	const char *why = NULL;

	cr_assert_eq(go_pclntab_open(fd, &why, &g), 0, "%s: %s", name, why);
	cr_assert_null(why);
	(void)steal_fd(&fd); /* is read from until the test's process ends */
	return g;
}

/* `name file:line`, tab before each, the file without its directory. */
static void print_names(const struct names *n, struct buf *b)
{
	for (size_t i = 0; i < n->count; i++) {
		const struct names_frame *f = &n->frames[i];
		const char *file = names_file(n, i);
		size_t from = f->file_size;

		while (from > 0 && file[from - 1] != '/')
			from--;
		cr_assert_eq(buf_printf(b, "\t%.*s %.*s:%u", (int)f->name_size, names_name(n, i),
				     (int)(f->file_size - from), file + from, f->line),
			0);
	}
}

static const char *const versions[] = {"go1.16", "go1.18", "go1.19", "go1.20", "go1.22", "go1.26"};

static void check_version(const char *version)
{
	_cleanup_(buf_done) struct buf expected = BUF_INIT(1 << 20);
	_cleanup_(go_pclntab_freep) struct go_pclntab *g = NULL;
	char path[64];
	char *save = NULL;
	size_t lines = 0, deepest = 0;
	struct names n;

	(void)snprintf(path, sizeof(path), "fixtures/go/%s.elf", version);
	g = fixture_table(path);
	cr_assert(go_pclntab_has_inlining(g));
	(void)snprintf(path, sizeof(path), "fixtures/go/%s.expected", version);
	cr_assert_eq(file_read(path, &expected), 0);
	names_init(&n);
	for (char *line = strtok_r(expected.data, "\n", &save); line;
		line = strtok_r(NULL, "\n", &save)) {
		char *rest = NULL;
		uint64_t start = strtoull(line, &rest, 16), end = strtoull(rest, &rest, 16);

		lines++;
		for (uint64_t at = start; at < end; at++) {
			_cleanup_(buf_done) struct buf got = BUF_INIT(1 << 16);

			cr_assert_eq(go_pclntab_find(g, at, &n), 0, "%s %lx", version, at);
			print_names(&n, &got);
			cr_assert_str_eq(buf_str(&got), rest, "%s %lx", version, at);
			cr_assert_eq(n.kind, NAMES_GO);
			cr_assert(n.start <= at && at - n.start < n.size);
			deepest = MAX(deepest, n.count);
		}
	}
	names_done(&n);
	cr_assert_gt(lines, 10);
	cr_assert_eq(deepest, 3); /* main.innermost, middle, outer */
}

Test(go_pclntab, b7_names_lines_and_inlined_calls_of_every_version_are_the_runtimes)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
		check_version(versions[i]);
}

static void check_name(struct go_pclntab *g, uint64_t vaddr, const char *want)
{
	struct names n;

	names_init(&n);
	cr_assert_eq(go_pclntab_find(g, vaddr, &n), 0);
	cr_assert_eq(n.frames[n.count - 1].name_size, strlen(want));
	cr_assert_eq(memcmp(names_name(&n, n.count - 1), want, strlen(want)), 0);
	names_done(&n);
}

Test(go_pclntab, text_begins_where_the_relocations_say)
{
	_cleanup_(go_pclntab_freep) struct go_pclntab *g =
		fixture_table("fixtures/go/go1.26-relocated.elf");

	cr_assert(go_pclntab_has_inlining(g));
	check_name(g, 0x4b7d40, "main.outer");
	check_name(g, 0x4b7e1e, "main.(*shape).area");
}

Test(go_pclntab, addresses_outside_the_text_have_no_name)
{
	_cleanup_(go_pclntab_freep) struct go_pclntab *g = fixture_table("fixtures/go/go1.26.elf");
	struct names n;

	names_init(&n);
	cr_assert_eq(go_pclntab_find(g, 0, &n), -ENOENT);
	cr_assert_eq(go_pclntab_find(g, go_pclntab_text_start(g) - 1, &n), -ENOENT);
	cr_assert_eq(go_pclntab_find(g, go_pclntab_text_start(g), &n), 0);
	cr_assert_eq(go_pclntab_find(g, go_pclntab_text_end(g) - 1, &n), 0);
	cr_assert_eq(go_pclntab_find(g, go_pclntab_text_end(g), &n), -ENOENT);
	cr_assert_eq(go_pclntab_find(g, UINT64_MAX, &n), -ENOENT);
	cr_assert_eq(n.count, 0);
	names_done(&n);
}

Test(go_pclntab, b29_type_arguments_are_one_form)
{
	static const char *const cases[][2] = {
		{"main.f[...]", "main.f[...]"},
		{"main.f[go.shape.int]", "main.f[...]"},
		{"main.f[go.shape.int_0]", "main.f[...]"},
		{"main.f[go.shape.map[string][]int,go.shape.[4]int].func1", "main.f[...].func1"},
		{"main.(*List[go.shape.string]).Push", "main.(*List[...]).Push"},
		{"main.(*List[int]).Map[go.shape.*uint8]-fm", "main.(*List[...]).Map[...]-fm"},
		{"type:.eq.[2]string", "type:.eq.[2]string"},
		{"type:.eq.[2]main.pair[int]", "type:.eq.[2]main.pair[...]"},
		{"main.open[int", "main.open[int"},
		{"main.plain", "main.plain"},
		{"[", "["},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(256);

		cr_assert_eq(go_pclntab_generic(cases[i][0], strlen(cases[i][0]), &b), 0);
		cr_assert_str_eq(buf_str(&b), cases[i][1]);
	}
}

/* --- made wrong --- */

struct bytes {
	uint8_t *data;
	size_t size, table;
};

static struct bytes fixture_bytes(const char *name)
{
	struct buf b = BUF_INIT(1 << 20);
	static const uint8_t head[] = {0xff, 0xff, 0xff, 0, 0, 1, 8};
	struct bytes ret = {0};

	cr_assert_eq(file_read(name, &b), 0);
	ret.data = (uint8_t *)b.data;
	ret.size = b.size;
	uint8_t *found = memmem(ret.data, ret.size, head, sizeof(head));

	cr_assert_not_null(found);
	ret.table = (size_t)(found - ret.data) - 1;
	return ret;
}

static int open_bytes(const struct bytes *b, const char **why, struct go_pclntab **ret)
{
	int fd = memfd_create("go", MFD_CLOEXEC);

	cr_assert_eq(file_write_all(fd, b->data, b->size), 0);
	return go_pclntab_open(fd, why, ret);
}

static uint64_t *table_word(const struct bytes *b, size_t i)
{
	return (uint64_t *)(void *)(b->data + b->table + 8 + i * 8);
}

static void check_refused(const struct bytes *b, int want, const char *want_why)
{
	struct go_pclntab *g = NULL;
	const char *why = NULL;

	cr_assert_eq(open_bytes(b, &why, &g), want, "%s", why);
	cr_assert_not_null(strstr(why, want_why), "%s", why);
	cr_assert_null(g);
}

/* One section named .gopclntab at the table, and the one that has the names. */
static void add_section(struct bytes *b, uint64_t vaddr)
{
	static const char names[32] = "\0.gopclntab\0.shstrtab";
	struct {
		uint32_t name, type;
		uint64_t flags, address, offset, size;
		uint32_t link, info;
		uint64_t align, entry;
	} sections[3] = {{0}, {.name = 1, .type = 1, .address = vaddr, .size = 1 << 20},
		{.name = 12, .type = 3, .size = sizeof(names)}};
	size_t at = (b->size + 7) / 8 * 8;
	uint16_t counts[3] = {sizeof(sections[0]), 3, 2};

	_Static_assert(sizeof(sections[0]) == 64, "as in the file");
	sections[2].offset = at + sizeof(sections);
	b->data = realloc(b->data, at + sizeof(sections) + sizeof(names));
	cr_assert_not_null(b->data);
	memset(b->data + b->size, 0, at - b->size);
	memcpy(b->data + at, sections, sizeof(sections));
	memcpy(b->data + at + sizeof(sections), names, sizeof(names));
	b->size = at + sizeof(sections) + sizeof(names);
	memcpy(b->data + 40, &at, 8);
	memcpy(b->data + 58, counts, sizeof(counts));
}

/* vaddr of the table: of the last but one PT_LOAD, see cut.py. */
static uint64_t table_vaddr(const struct bytes *b)
{
	uint16_t count;
	uint64_t vaddr;

	memcpy(&count, b->data + 56, 2);
	memcpy(&vaddr, b->data + 64 + 56 * (count - 2U) + 16, 8);
	return vaddr;
}

Test(go_pclntab, b7_an_unknown_magic_is_refused_with_its_value)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");

	add_section(&b, table_vaddr(&b));
	b.data[b.table] = 0xef;
	check_refused(&b, -ENOTSUP, "magic 0xffffffef");
	b.data[b.table] = 0xfb;
	check_refused(&b, -ENOTSUP, "magic 0xfffffffb, Go 1.15 or older");
	b.data[b.table] = 0xf1;
	struct go_pclntab *g = NULL;
	const char *why;

	cr_assert_eq(open_bytes(&b, &why, &g), 0, "%s", why);
	check_name(g, 0x4b7d40, "main.outer");
	go_pclntab_free(g);
	free(b.data);
}

Test(go_pclntab, b7_a_table_of_another_layout_is_refused)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");

	b.data[b.table] = 0xfa; /* says 1.16 */
	check_refused(&b, -EBADMSG, "header");
	free(b.data);
	b = fixture_bytes("fixtures/go/go1.16.elf");
	b.data[b.table] = 0xf1;
	check_refused(&b, -EBADMSG, "header");
	free(b.data);
}

Test(go_pclntab, functions_that_do_not_ascend_are_refused)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");
	uint32_t *pairs = (uint32_t *)(void *)(b.data + b.table + *table_word(&b, 7));

	pairs[4] = pairs[2] - 1;
	check_refused(&b, -EBADMSG, "ascend");
	free(b.data);
}

Test(go_pclntab, a_module_with_other_bounds_is_refused)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");
	uint32_t *pairs = (uint32_t *)(void *)(b.data + b.table + *table_word(&b, 7));

	pairs[0]--;
	check_refused(&b, -EBADMSG, "disagree");
	free(b.data);
}

Test(go_pclntab, without_a_text_start_nothing_is_named)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");

	b.data[b.size - 48 * 8] ^= 1; /* the module's pointer to the table */
	check_refused(&b, -EBADMSG, "where Go's text begins");
	free(b.data);
}

Test(go_pclntab, counts_beyond_the_file_are_refused)
{
	static const uint64_t values[] = {0, 1 << 16, 1ULL << 32, 1ULL << 61, UINT64_MAX};

	for (size_t word = 0; word < 8; word++) {
		for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
			struct bytes b = fixture_bytes("fixtures/go/go1.20.elf");
			struct go_pclntab *g = NULL;
			const char *why = NULL;

			*table_word(&b, word) = values[i];
			/* Files are not counted, the text's start is the module's. */
			cr_assert_eq(open_bytes(&b, &why, &g),
				word == 1 || word == 2 ? 0 : -EBADMSG, "%zu %lx", word, values[i]);
			go_pclntab_free(g);
			free(b.data);
		}
	}
}

Test(go_pclntab, call_trees_that_make_no_sense_leave_the_real_function)
{
	struct bytes b = fixture_bytes("fixtures/go/go1.26.elf");
	uint64_t *module = (uint64_t *)(void *)(b.data + b.size - 48 * 8);
	struct go_pclntab *g = NULL;
	const char *why = NULL;

	module[40] += 1;
	cr_assert_eq(open_bytes(&b, &why, &g), 0, "%s", why);
	cr_assert_not(go_pclntab_has_inlining(g));
	check_name(g, 0x4b7d49, "main.outer");
	go_pclntab_free(g);
	free(b.data);
}

Test(go_pclntab, other_programs_are_none_of_go)
{
	_cleanup_(closep) int fd = fixture_open("fixtures/elf/bfd.so");
	struct go_pclntab *g = NULL;
	const char *why = NULL;

	cr_assert_eq(go_pclntab_open(fd, &why, &g), -ENODATA);
	cr_assert_str_eq(why, "no Go program");
	_cleanup_(closep) int text = fixture_open("fixtures/README.md");

	cr_assert_eq(go_pclntab_open(text, &why, &g), -ENODATA);
}

Test(go_pclntab, stack_pointer_is_where_the_prologue_puts_it)
{
	_cleanup_(go_pclntab_freep) struct go_pclntab *g = fixture_table("fixtures/go/go1.26.elf");
	struct go_function f;
	struct go_sp s;
	size_t index = 0;
	int32_t most = 0;
	uint64_t end = 0;

	cr_assert_eq(go_pclntab_seek(g, 0x4b7dae, &index), 0);
	cr_assert_eq(go_pclntab_function(g, index, &f), 0);
	cr_assert_eq(f.start, 0x4b7da0);
	cr_assert_eq(go_pclntab_sp_begin(g, &f, &s), 0);
	while (go_pclntab_sp_next(g, &s) == 1) {
		if (s.start == f.start)
			cr_assert_eq(s.value, 0);
		cr_assert(end == 0 || s.start == end);
		end = s.end;
		most = MAX(most, s.value);
	}
	cr_assert(end <= f.end && f.end - end < 32); /* functions are aligned */
	cr_assert_eq(most, 24);                      /* sub rsp, 16 behind push rbp, by objdump */
}
