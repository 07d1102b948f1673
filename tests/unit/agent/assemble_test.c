/* Counts and records to samples: markers, labels, values, and what happens to a lost stack. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/assemble.h"

Test(assemble, only_a_complete_stack_has_no_marker)
{
	cr_assert_null(assemble_marker(SAMPLE_END_ROOT, 0));
	cr_assert_str_eq(assemble_marker(SAMPLE_END_NO_FP, 0), "[truncated: no frame pointer]");
	cr_assert_not_null(assemble_marker(SAMPLE_END_UNREADABLE, 0));
	cr_assert_not_null(assemble_marker(SAMPLE_END_DEPTH, 0));
	cr_assert_not_null(assemble_marker(SAMPLE_END_NO_USER, 0));
	cr_assert_null(assemble_marker(SAMPLE_END_NO_USER, STACK_RECORD_KTHREAD));
	cr_assert_not_null(assemble_marker(SAMPLE_END_COUNT, 0));
}

Test(assemble, every_end_has_a_marker_of_its_own)
{
	for (uint32_t i = SAMPLE_END_NO_FP; i < SAMPLE_END_COUNT; i++) {
		const char *marker = assemble_marker(i, 0);

		cr_assert_eq(strncmp(marker, "[truncated: ", 12), 0, "%u: %s", i, marker);
		for (uint32_t k = SAMPLE_END_NO_FP; k < i; k++)
			cr_assert_str_neq(marker, assemble_marker(k, 0));
	}
}

static struct stack_record *no_fp_record(void)
{
	struct stack_record *r = calloc(1, sizeof(*r) + sizeof(r->frames[0]));

	cr_assert_not_null(r);
	r->key = (struct stack_key){.hash = 5, .tgid = 4194304, .tid = 77};
	(void)strncpy(r->process_comm, "a;b", sizeof(r->process_comm) - 1);
	memset(r->thread_comm, 'x', sizeof(r->thread_comm)); /* no NUL: hostile */
	r->user_count = 1;
	r->end = SAMPLE_END_NO_FP;
	r->flags = STACK_RECORD_INTERRUPTED;
	r->frames[0] = 0x401000;
	return r;
}

static const char *frame_name(const struct profile *p, const struct sample *s, uint32_t i)
{
	return profile_text(p, profile_frame_at(p, s->frames[i])->name);
}

Test(assemble, a_count_becomes_a_sample_and_a_lost_stack_says_so)
{
	struct symbolizer_options options = {0};
	struct collect_stack counted[] = {
		{.key = {.hash = 5, .tgid = 4194304, .tid = 77},
			.value = {.samples = 3, .weight_ns = 300}},
		{.key = {.hash = 6, .tgid = 4194304}, .value = {.samples = 1, .weight_ns = 50}},
	};
	struct stack_record *r = no_fp_record();
	struct assemble_totals totals;
	struct symbolizer *symbolizer;
	struct profile *p;
	struct stacks *records;
	struct sample s;

	cr_assert_eq(symbolizer_new(&options, &symbolizer), 0);
	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(stacks_new(16, 1 << 20, &records), 0);
	cr_assert_eq(stacks_add(records, r), 0);
	cr_assert_eq(assemble_profile(p,
			     &(struct assemble_input){.records = records,
				     .counted = counted,
				     .count = 2,
				     .symbolizer = symbolizer,
				     .with_tid = true},
			     &totals),
		0);
	cr_assert_eq(totals.samples, 4);
	cr_assert_eq(totals.weight_ns, 350);
	cr_assert_eq(totals.stacks_missing, 1);
	cr_assert_eq(profile_sample_count(p), 2);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, 2);
	cr_assert_str_eq(frame_name(p, &s, 0), "[exited]");
	cr_assert_str_eq(frame_name(p, &s, 1), "[truncated: no frame pointer]");
	cr_assert_eq(s.values[0], 3);
	cr_assert_eq(s.values[1], 300);
	cr_assert_str_eq(profile_sample_label(p, &s, "comm"), "a;b");
	cr_assert_str_eq(profile_sample_label(p, &s, "thread"), "xxxxxxxxxxxxxxxx");
	cr_assert(profile_sample_at(p, 1, &s));
	cr_assert_eq(s.frame_count, 1);
	cr_assert_str_eq(frame_name(p, &s, 0), "[stack lost]");
	cr_assert_eq(s.values[1], 50);
	stacks_free(records);
	profile_free(p);
	symbolizer_free(symbolizer);
	free(r);
}

Test(assemble, lost_samples_are_in_the_profile_by_reason)
{
	struct symbolizer_options options = {0};
	struct sample_count losses[SAMPLE_LOSS_COUNT] = {
		[SAMPLE_LOSS_RING_FULL] = {3, 30},
		[SAMPLE_LOSS_MAP_FULL] = {5, 500},
		[SAMPLE_LOSS_LEDGER_FULL] = {7, 700}, /* their stacks were counted */
		[SAMPLE_LOSS_NESTED] = {2, 0},
	};
	struct assemble_totals totals;
	struct symbolizer *symbolizer;
	struct profile *p;
	struct stacks *records;
	struct sample s;

	cr_assert_eq(symbolizer_new(&options, &symbolizer), 0);
	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(stacks_new(16, 1 << 20, &records), 0);
	cr_assert_eq(assemble_profile(p,
			     &(struct assemble_input){
				     .records = records,
				     .symbolizer = symbolizer,
				     .losses = losses,
			     },
			     &totals),
		0);
	cr_assert_eq(totals.samples, 8);
	cr_assert_eq(totals.weight_ns, 530);
	cr_assert_eq(profile_sample_count(p), 2);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, 1);
	cr_assert_str_eq(frame_name(p, &s, 0), "[lost: ring full]");
	cr_assert_eq(s.values[1], 30);
	cr_assert(profile_sample_at(p, 1, &s));
	cr_assert_str_eq(frame_name(p, &s, 0), "[lost: too many stacks]");
	cr_assert_eq(s.values[0], 5);
	profile_free(p);
	stacks_free(records);
	symbolizer_free(symbolizer);
}
