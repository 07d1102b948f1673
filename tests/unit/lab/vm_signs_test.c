/* vm_signs: what is taken from a console, which any program in the guest may write to. */
#include "lab/vm_internal.h"

#include <criterion/criterion.h>

#include "base/def.h"

struct seen {
	char step[96];
	unsigned int done, total, calls;
};

static struct job_step steps[] = {
	{.name = "a", .workload = "w", .timeout_ms = 5000}, {.name = "b", .workload = "w"}};
static const struct job job = {.steps = steps, .step_count = 2};

static void note(void *data, const char *step, unsigned int done, unsigned int total)
{
	struct seen *s = data;

	(void)snprintf(s->step, sizeof(s->step), "%s", step);
	s->done = done;
	s->total = total;
	s->calls++;
}

static void feed(struct vm_signs *s, const char *text)
{
	vm_signs_feed(s, text, strlen(text));
}

Test(vm_signs, follow_a_run_to_its_end)
{
	_cleanup_(vm_signs_done) struct vm_signs s;
	struct seen seen = {0};

	vm_signs_init(&s, &job, note, &seen);
	feed(&s, "[ 1.0] noise\r\nflamelab: boot 4474");
	cr_assert_not(s.booted);
	feed(&s, "847\r\nflamelab: step 1/2 a start\r\n");
	cr_assert(s.booted);
	cr_assert_eq(s.guest_ns, 4474847);
	cr_assert_str_eq(s.step, "a");
	cr_assert_eq(s.timeout_ms, 5000);
	cr_assert_eq(seen.done, 0);
	cr_assert_eq(seen.total, 2);
	feed(&s, "flamelab: step 1/2 a end\r\n");
	cr_assert_str_eq(s.step, "");
	cr_assert_eq(seen.done, 1);
	feed(&s, "flamelab: step 2/2 b start\nflamelab: step 2/2 b end\nflamelab: done 99\n");
	cr_assert(s.finished);
	cr_assert_eq(s.guest_ns, 99);
	cr_assert_eq(seen.calls, 4);
}

Test(vm_signs, disbelieve_a_step_that_the_job_does_not_have)
{
	_cleanup_(vm_signs_done) struct vm_signs s;
	struct seen seen = {0};

	vm_signs_init(&s, &job, note, &seen);
	feed(&s, "flamelab: step 3/2 a start\nflamelab: step 0/2 a start\n"
		 "flamelab: step 1/2 other start\nflamelab: step x\n");
	cr_assert_eq(seen.calls, 0);
	cr_assert_str_eq(s.step, "");
}

Test(vm_signs, keep_the_first_death_and_the_first_error)
{
	_cleanup_(vm_signs_done) struct vm_signs s;

	vm_signs_init(&s, &job, NULL, NULL);
	feed(&s, "[ 2.0] BUG: kernel NULL pointer\n[ 2.1] Kernel panic - not syncing\n"
		 "flamelab: error one\nflamelab: error two\nflamelab: full\n");
	cr_assert_str_eq(s.panic, "BUG: kernel NULL pointer");
	cr_assert_str_eq(s.error, "one");
	cr_assert(s.full);
}

Test(vm_signs, cut_a_line_without_end_and_drop_control_bytes)
{
	_cleanup_(vm_signs_done) struct vm_signs s;

	vm_signs_init(&s, &job, NULL, NULL);
	for (int i = 0; i < 100000; i++)
		feed(&s, "x\x1b[");
	feed(&s, "\nflame\x01lab: boot 7\n");
	cr_assert(s.booted);
	cr_assert_eq(s.guest_ns, 7);
}
