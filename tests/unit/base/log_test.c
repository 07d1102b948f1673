/* log: the line's form, one write, the limit per minute. */
#include "base/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>

#include "base/str.h"

static int ends[2];
static uint64_t fake_now_ns;

static uint64_t fake_clock(void)
{
	return fake_now_ns;
}

static void set_up(void)
{
	/* A packet pipe: one read gives what one write wrote. */
	cr_assert_eq(pipe2(ends, O_CLOEXEC | O_DIRECT | O_NONBLOCK), 0);
	fake_now_ns = NSEC_PER_SEC;
	log_set_fd(ends[1]);
	log_set_clock(fake_clock);
}

TestSuite(log, .init = set_up);

/* The next line, "" when there is none. */
static const char *next_line(void)
{
	static char line[8192];
	ssize_t n = read(ends[0], line, sizeof(line) - 1);

	line[n > 0 ? n : 0] = '\0';
	return line;
}

Test(log, line_names_level_area_action_error_and_pairs)
{
	log_error("record", "open output", -EACCES, "file=%s", "/x");
	cr_assert_str_eq(next_line(), "level=error area=record action=\"open output\" "
				      "error=\"Permission denied\" file=/x\n");
	log_warn("loop", "poll", EINTR, "%s", "");
	cr_assert_str_eq(next_line(),
		"level=warn area=loop action=poll error=\"Interrupted system call\"\n");
	log_info("main", "start", "pid=%d", 7);
	cr_assert_str_eq(next_line(), "level=info area=main action=start pid=7\n");
	log_error("main", "x", -4000, "%s", "");
	cr_assert_str_eq(next_line(), "level=error area=main action=x error=\"unknown error\"\n");
}

Test(log, level_decides_what_is_written)
{
	log_debug("a", "b", "%s", "x=1");
	cr_assert_str_eq(next_line(), "");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("a", "b", "%s", "x=1");
	cr_assert_str_eq(next_line(), "level=debug area=a action=b x=1\n");
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("a", "b", 0, "%s", "x=1");
	cr_assert_str_eq(next_line(), "");
}

Test(log, hostile_values_stay_on_one_line_of_valid_utf8)
{
	const char *line;

	log_info("a", "b", "comm=%s", "x\nlevel=error\x1b[31m\xd0");
	line = next_line();
	cr_assert_str_eq(line, "level=info area=a action=b comm=x\xef\xbf\xbdlevel=error"
			       "\xef\xbf\xbd[31m\xef\xbf\xbd\n");
	log_info("a", "q\"uo\\te", "%s", "");
	cr_assert_str_eq(next_line(), "level=info area=a action=\"q\\\"uo\\\\te\"\n");
}

Test(log, line_is_cut_at_its_maximum)
{
	static char big[20000];

	memset(big, 'x', sizeof(big) - 1);
	log_info("a", "b", "v=%s", big);
	/* A packet is at most a page: 4096 bytes, then the newline. */
	cr_assert_eq(strlen(next_line()), 4096);
	cr_assert_str_eq(next_line(), "\n");
}

Test(log, eleventh_line_of_a_minute_is_suppressed_and_counted_later)
{
	for (int i = 0; i < 10; i++) {
		log_info("a", "b", "i=%d", i);
		cr_assert_neq(next_line()[0], '\0');
	}
	for (int i = 0; i < 3; i++) {
		log_info("a", "b", "i=%d", 10 + i);
		cr_assert_str_eq(next_line(), "");
	}
	log_info("a", "other", "%s", "i=1");
	cr_assert_str_eq(next_line(), "level=info area=a action=other i=1\n");
	fake_now_ns += 60 * NSEC_PER_SEC - 1;
	log_info("a", "b", "%s", "i=13");
	cr_assert_str_eq(next_line(), "", "the minute is not over");
	fake_now_ns += 1;
	log_info("a", "b", "%s", "i=14");
	cr_assert_str_eq(next_line(), "level=info area=a action=b i=14 suppressed=4\n");
	log_info("a", "b", "%s", "i=15");
	cr_assert_str_eq(next_line(), "level=info area=a action=b i=15\n");
}

Test(log, more_pairs_than_the_table_holds_still_get_through)
{
	char action[16];

	for (int i = 0; i < 200; i++) {
		(void)snprintf(action, sizeof(action), "act%d", i);
		fake_now_ns++;
		log_info("a", action, "%s", "");
		cr_assert(str_has_suffix(next_line(), "\n"), "%d", i);
	}
}
