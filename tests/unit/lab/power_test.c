/* The log of a power cut is read within its bounds, and a promise that was not kept turns the gate red. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "lab/guest/power_log.h"
#include "lab/judge.h"

enum { SECTOR = 512, LOG_SIZE = 16 * SECTOR, DEVICE = 8 * SECTOR };

static void put_u64(unsigned char *p, uint64_t v)
{
	for (unsigned int i = 0; i < 8; i++)
		p[i] = (unsigned char)(v >> (8 * i));
}

/* An entry at sector at of the log. */
static unsigned char *put_entry(unsigned char *log, unsigned int at, uint64_t sector,
	uint64_t count, uint64_t flags, uint64_t text)
{
	unsigned char *p = log + at * SECTOR;

	put_u64(p, sector);
	put_u64(p + 8, count);
	put_u64(p + 16, flags);
	put_u64(p + 24, text);
	return p + 32;
}

/* Two sectors of 'a' to sector 3, mark "e7", one sector of 'b' to sector 4, sector 3 discarded. */
static void make_log(unsigned char log[LOG_SIZE])
{
	unsigned char *mark;

	memset(log, 0, LOG_SIZE);
	put_u64(log, POWER_LOG_MAGIC);
	put_u64(log + 8, 1);
	put_u64(log + 16, 4);
	put_u64(log + 24, SECTOR);
	(void)put_entry(log, 1, 3, 2, 1, 0);
	memset(log + 2 * SECTOR, 'a', (size_t)2 * SECTOR);
	mark = put_entry(log, 4, 0, 0, POWER_LOG_MARK, 2);
	mark[0] = 'e';
	mark[1] = '7';
	(void)put_entry(log, 5, 4, 1, 2, 0);
	memset(log + 6 * SECTOR, 'b', SECTOR);
	(void)put_entry(log, 7, 3, 1, POWER_LOG_DISCARD, 0);
}

/* The device after the first k entries. */
static int replay(const unsigned char *log, size_t size, uint64_t k, unsigned char *device,
	char mark[POWER_LOG_MARK_MAX])
{
	struct power_entry e;
	struct power_log l;
	uint64_t at;
	int err = power_log_open(log, size, &l);

	memset(device, '.', DEVICE);
	if (err < 0)
		return err;
	at = power_log_start(&l);
	for (uint64_t i = 0; err == 0 && i < k; i++) {
		err = power_log_next(&l, &at, &e);
		if (err == 0)
			err = power_log_apply(&e, device, DEVICE);
		if (err == 0 && e.is_mark)
			memcpy(mark, e.mark, sizeof(e.mark));
	}
	return err;
}

Test(power_log, cut_has_the_entries_before_it_and_no_other)
{
	static const char want[][9] = {"........", "...aa...", "...aa...", "...ab...", "...\0b..."};
	unsigned char log[LOG_SIZE], device[DEVICE];
	char mark[POWER_LOG_MARK_MAX] = "";

	make_log(log);
	for (uint64_t k = 0; k <= 4; k++) {
		cr_assert_eq(replay(log, sizeof(log), k, device, mark), 0);
		for (size_t s = 0; s < 8; s++)
			cr_assert(device[s * SECTOR] == (unsigned char)want[k][s] &&
					  device[s * SECTOR + SECTOR - 1] ==
						  (unsigned char)want[k][s],
				"sector %zu after %d entries", s, (int)k);
		cr_assert_str_eq(mark, k < 2 ? "" : "e7");
	}
}

Test(power_log, log_that_ends_early_is_refused_at_every_length)
{
	unsigned char log[LOG_SIZE], device[DEVICE];
	char mark[POWER_LOG_MARK_MAX];

	make_log(log);
	for (size_t size = 0; size < (size_t)8 * SECTOR; size += 64) {
		unsigned char *cut = malloc(size + 1); /* so that ASan sees a read behind it */

		cr_assert_not_null(cut);
		memcpy(cut, log, size);
		cr_assert_eq(replay(cut, size, 4, device, mark), -EBADMSG, "%zu", size);
		free(cut);
	}
	cr_assert_eq(replay(log, (size_t)8 * SECTOR, 4, device, mark), 0);
}

Test(power_log, entry_beyond_the_device_or_the_log_is_refused)
{
	static const struct {
		uint64_t sector, count, flags, text;
	} bad[] = {
		{7, 2, 0, 0},
		{8, 1, POWER_LOG_DISCARD, 0},
		{UINT64_MAX, 1, 0, 0},
		{UINT64_MAX / SECTOR, 1, 0, 0},
		{0, UINT64_MAX, 0, 0},
		{0, UINT64_MAX / SECTOR, 0, 0},
		{1, UINT64_MAX / SECTOR, POWER_LOG_DISCARD, 0},
		{0, 0, POWER_LOG_MARK, SECTOR - 31},
		{0, 0, POWER_LOG_MARK, UINT64_MAX},
	};
	unsigned char log[LOG_SIZE], device[DEVICE];
	char mark[POWER_LOG_MARK_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		make_log(log);
		(void)put_entry(log, 1, bad[i].sector, bad[i].count, bad[i].flags, bad[i].text);
		cr_assert_eq(replay(log, sizeof(log), 1, device, mark), -EBADMSG, "%zu", i);
	}
}

Test(power_log, other_version_and_mad_superblock_are_refused)
{
	unsigned char log[LOG_SIZE];
	struct power_log l;

	make_log(log);
	log[8] = 2;
	cr_assert_eq(power_log_open(log, sizeof(log), &l), -EPROTO);
	make_log(log);
	put_u64(log + 16, UINT64_MAX);
	cr_assert_eq(power_log_open(log, sizeof(log), &l), -EBADMSG);
	make_log(log);
	put_u64(log + 24, 513);
	cr_assert_eq(power_log_open(log, sizeof(log), &l), -EBADMSG);
	make_log(log);
	log[0] ^= 1;
	cr_assert_eq(power_log_open(log, sizeof(log), &l), -EBADMSG);
}

/* --- the result and its gate */

static const char result[] =
	"{\"schema\":\"flamelab-power/1\",\"error\":\"\",\"first\":\"push 3 is "
	"lost\",\"entries\":1,"
	"\"log_bytes\":2,\"marks\":3,\"cuts_wanted\":4,\"cuts\":5,\"cuts_between\":6,\"held\":7,"
	"\"lost_pushes\":8,\"wrong_pushes\":9,\"lost_requests\":10,\"lost_tokens\":11,"
	"\"verify_faults\":12,\"failed_mounts\":13,\"failed_starts\":14,\"failed_calls\":15}";

Test(power, result_is_read_whole)
{
	struct power_result p;

	cr_assert_eq(power_parse(&p, "p", result, sizeof(result) - 1), 0, "%s", p.doc.message);
	cr_assert_str_eq(p.first, "push 3 is lost");
	cr_assert_eq(p.cuts_wanted, 4);
	cr_assert_eq(p.lost_pushes, 8);
	cr_assert_eq(p.failed_calls, 15);
	power_done(&p);
}

Test(power, result_without_a_number_is_refused)
{
	static const char cut[] = "{\"schema\":\"flamelab-power/1\",\"error\":\"\",\"first\":\"\"}";
	struct power_result p;

	cr_assert_eq(power_parse(&p, "p", cut, sizeof(cut) - 1), -EBADMSG);
	cr_assert_str_eq(p.doc.message, "p: entries: is missing");
	power_done(&p);
}

static struct evidence well(void)
{
	return (struct evidence){.step = "power_cut.seed1",
		.has_power = true,
		.power = {.error = "",
			.first = "",
			.cuts_wanted = 20,
			.cuts = 20,
			.cuts_between = 6,
			.held = 100}};
}

static enum gate_status judged(const struct evidence *e)
{
	_cleanup_(gate_list_done) struct gate_list l = {0};
	struct gate *g = gate_add(&l, GATE_POWER_CUT, "s", "", GATE_REQUIRED);

	judge_power_cut(g, e, 1);
	gate_decide(g);
	return g->status;
}

Test(power, gate_is_red_for_each_thing_that_can_go_wrong)
{
	struct evidence e = well();
	uint64_t *const counters[] = {&e.power.lost_pushes, &e.power.wrong_pushes,
		&e.power.lost_requests, &e.power.lost_tokens, &e.power.verify_faults,
		&e.power.failed_mounts, &e.power.failed_starts, &e.power.failed_calls};

	cr_assert_eq(judged(&e), GATE_PASS);
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		*counters[i] = 1;
		cr_assert_eq(judged(&e), GATE_FAIL, "%zu", i);
		*counters[i] = 0;
	}
	e.power.cuts = 19;
	cr_assert_eq(judged(&e), GATE_FAIL);
}

Test(power, run_that_could_not_show_a_loss_proves_nothing)
{
	struct evidence e = well();

	e.power.held = 0;
	cr_assert_eq(judged(&e), GATE_UNMEASURED);
	e = well();
	e.power.cuts_between = 0;
	cr_assert_eq(judged(&e), GATE_UNMEASURED);
	e = well();
	e.has_power = false;
	cr_assert_eq(judged(&e), GATE_UNMEASURED);
}

Test(power, loss_that_was_found_before_the_play_broke_off_stands)
{
	struct evidence e = well();

	e.power.error = "cannot unmount";
	cr_assert_eq(judged(&e), GATE_UNMEASURED);
	e.power.lost_pushes = 1;
	cr_assert_eq(judged(&e), GATE_FAIL);
}
