/* assemble: what inlined functions may change of a profile, and what not. */
#include <criterion/criterion.h>
#include <dlfcn.h>

#include "agent/assemble.h"
#include "base/def.h"
#include "dwarf_fixture.h"

enum { RECORD_SIZE = sizeof(struct stack_record) + SAMPLE_USER_FRAMES_MAX * sizeof(uint64_t) };

#define LIBRARY " -O3 -fPIC -shared -o $so $source"

struct setting {
	struct dwarf_fixture fixture;
	struct symbolizer *symbolizer;
	struct stacks *records;
	struct profile *profile;
	uint64_t outie;
};

static void setting_done(struct setting *t)
{
	symbolizer_free(t->symbolizer);
	stacks_free(t->records);
	profile_free(t->profile);
	dwarf_fixture_done(&t->fixture);
}

static void setting_init(struct setting *t, const char *command, enum symbolizer_lines lines)
{
	const struct symbolizer_options o = {.lines = lines};

	*t = (struct setting){0};
	dwarf_fixture_make(&t->fixture, command);
	void *library = dlopen(t->fixture.path, RTLD_NOW);

	cr_assert_not_null(library, "%s", dlerror());
	t->outie = (uint64_t)(uintptr_t)dlsym(library, "outie");
	cr_assert_eq(symbolizer_new(&o, &t->symbolizer), 0);
	cr_assert_eq(stacks_new(4096, 16 << 20, &t->records), 0);
	cr_assert_eq(profile_new(16 << 20, &t->profile), 0);
}

/* A stack of count times the same address. */
static void add(struct setting *t, uint64_t hash, uint64_t pc, uint32_t count)
{
	_Alignas(struct stack_record) uint8_t bytes[RECORD_SIZE] = {0};
	struct stack_record *r = (struct stack_record *)bytes;

	r->key = (struct stack_key){.hash = hash, .tgid = (uint32_t)getpid()};
	r->user_count = count;
	r->end = SAMPLE_END_ROOT;
	r->flags = STACK_RECORD_INTERRUPTED;
	for (uint32_t i = 0; i < count; i++)
		r->frames[i] = pc + (i > 0);
	cr_assert_eq(stacks_add(t->records, r), 0);
}

static struct assemble_totals assemble(
	struct setting *t, const struct collect_stack *counted, size_t count)
{
	struct assemble_totals totals = {0};

	cr_assert_eq(assemble_profile(t->profile,
			     &(struct assemble_input){
				     .records = t->records,
				     .counted = counted,
				     .count = count,
				     .symbolizer = t->symbolizer,
			     },
			     &totals),
		0);
	return totals;
}

/* One stack for each byte of outie(), each with another count. */
static int64_t total_of(const char *command, enum symbolizer_lines lines, size_t *ret_samples)
{
	_cleanup_(setting_done) struct setting t;
	struct collect_stack counted[1024] = {0};
	size_t count;

	setting_init(&t, command, lines);
	for (count = 0; count < 64; count++) {
		uint64_t pc = t.outie + count * t.fixture.size / 64;

		add(&t, count + 1, pc, 1);
		counted[count].key =
			(struct stack_key){.hash = count + 1, .tgid = (uint32_t)getpid()};
		counted[count].value.samples = count + 1;
		counted[count].value.weight_ns = 1000 * (count + 1);
	}
	struct assemble_totals totals = assemble(&t, counted, count);
	cr_assert_eq(profile_total(t.profile, 0), (int64_t)totals.samples);
	cr_assert_eq(profile_total(t.profile, 1), (int64_t)totals.weight_ns);
	*ret_samples = profile_sample_count(t.profile);
	return profile_total(t.profile, 1);
}

Test(assemble_inline, b8_totals_are_equal_with_and_without_inlined_functions, .timeout = 120)
{
	size_t by_line = 0;
	size_t by_function = 0;
	size_t stripped = 0;

	cr_assert_eq(total_of("g++ -g" LIBRARY, SYMBOLIZER_LINES_LINE, &by_line), 2080000);
	cr_assert_eq(total_of("g++ -g" LIBRARY, SYMBOLIZER_LINES_FUNCTION, &by_function), 2080000);
	cr_assert_eq(total_of("g++ -g" LIBRARY " && strip $so", SYMBOLIZER_LINES_LINE, &stripped),
		2080000);
	cr_assert_eq(stripped, 1);
	cr_assert_leq(by_function, 3);
	cr_assert_gt(by_line, by_function);
}

static const char *frame_name(const struct profile *p, const struct sample *s, uint32_t i)
{
	return profile_text(p, profile_frame_at(p, s->frames[i])->name);
}

Test(assemble_inline, a_stack_deeper_than_a_profile_keeps_its_leaf_and_says_so, .timeout = 60)
{
	_cleanup_(setting_done) struct setting t;
	struct collect_stack counted = {.key = {.hash = 1, .tgid = (uint32_t)getpid()},
		.value = {.samples = 5, .weight_ns = 50}};
	uint32_t frames[8];
	struct sample s;
	uint64_t pc;

	setting_init(&t, "g++ -g" LIBRARY, SYMBOLIZER_LINES_FUNCTION);
	for (pc = t.outie; pc < t.outie + t.fixture.size; pc++)
		if (symbolizer_user(t.symbolizer, t.profile,
			    &(struct symbolizer_process){.tgid = (uint32_t)getpid()}, &pc, 1, false,
			    ARRAY_SIZE(frames), frames) == 3)
			break;
	add(&t, 1, pc, SAMPLE_USER_FRAMES_MAX);
	struct assemble_totals totals = assemble(&t, &counted, 1);
	cr_assert_eq(totals.samples, 5);
	cr_assert(profile_sample_at(t.profile, 0, &s));
	cr_assert_eq(s.frame_count, PROFILE_DEPTH_MAX);
	cr_assert_str_eq(frame_name(t.profile, &s, 0), "fixture::innie");
	cr_assert_str_eq(frame_name(t.profile, &s, 2), "outie");
	cr_assert_str_eq(frame_name(t.profile, &s, PROFILE_DEPTH_MAX - 1), "[truncated: too deep]");
}
