/* What is refused before sampling, and that checking leaves nothing behind. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/preflight.h"

Test(preflight, a_live_process_passes_and_an_absent_one_is_named)
{
	struct buf why = BUF_INIT(1024);
	uint64_t pids[] = {(uint64_t)getpid(), 4194303};

	cr_assert_eq(preflight_pids(pids, 1, &why), 0);
	cr_assert_eq(why.size, 0);
	cr_assert_eq(preflight_pids(pids, 2, &why), -ESRCH);
	cr_assert_not_null(strstr(buf_str(&why), "4194303"));
	buf_done(&why);
}

static void *try_own_tid(void *data)
{
	struct buf *why = data;
	uint64_t tid = (uint64_t)syscall(SYS_gettid);

	cr_assert_eq(preflight_pids(&tid, 1, why), -ESRCH);
	return NULL;
}

Test(preflight, a_thread_is_refused_with_its_process)
{
	struct buf why = BUF_INIT(1024);
	char pid[32];
	pthread_t t;

	(void)snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	cr_assert_eq(pthread_create(&t, NULL, try_own_tid, &why), 0);
	cr_assert_eq(pthread_join(t, NULL), 0);
	cr_assert_not_null(strstr(buf_str(&why), pid), "%s", buf_str(&why));
	buf_done(&why);
}

Test(preflight, an_output_that_can_be_written_leaves_no_trace)
{
	char dir[] = "/tmp/preflight-XXXXXX";
	struct buf why = BUF_INIT(1024);
	char path[64];

	cr_assert_not_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/x.svg", dir);
	cr_assert_eq(preflight_output(path, &why), 0);
	cr_assert_eq(rmdir(dir), 0, "something was left behind");
	buf_done(&why);
}

Test(preflight, outputs_that_cannot_be_written_are_refused)
{
	struct buf why = BUF_INIT(1024);

	cr_assert_eq(preflight_output("/nonexistent/x.svg", &why), -ENOENT);
	cr_assert_not_null(strstr(buf_str(&why), "/nonexistent/x.svg"));
	buf_reset(&why);
	cr_assert_eq(preflight_output("/dev/null", &why), -EEXIST);
	cr_assert_eq(preflight_output("/", &why), -EEXIST);
	cr_assert_eq(preflight_output("", &why), -EINVAL);
	buf_done(&why);
}

Test(preflight, a_ready_descriptor_is_open_for_writing)
{
	struct buf why = BUF_INIT(1024);
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	cr_assert_eq(preflight_ready_fd(ends[1], &why), 0);
	cr_assert_eq(why.size, 0);
	cr_assert_eq(preflight_ready_fd(ends[0], &why), -EBADF);
	cr_assert_not_null(strstr(buf_str(&why), "--ready-fd"));
	(void)close(ends[1]);
	cr_assert_eq(preflight_ready_fd(ends[1], &why), -EBADF);
	(void)close(ends[0]);
	buf_done(&why);
}
