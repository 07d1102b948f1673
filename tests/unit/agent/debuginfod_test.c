/* debuginfod: which servers may be named, what is remembered, and what has to go. */
#include "agent/debuginfod.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "agent/debuginfod_store.h"
#include "base/def.h"
#include "base/file.h"

#define ID_A "aa00000000000000000000000000000000000001"
#define ID_B "bb00000000000000000000000000000000000002"
#define ID_C "cc00000000000000000000000000000000000003"

enum { NOW_S = 2000000000 };

static char top[32];

static void enter(void)
{
	(void)snprintf(top, sizeof(top), "/tmp/debuginfod.XXXXXX");
	cr_assert_not_null(mkdtemp(top));
	cr_assert_eq(chdir(top), 0);
}

static void leave(void)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a path of our own */
}

static bool takes(const char *url)
{
	const char *which;

	return debuginfod_complaint(&url, 1, &which) == NULL;
}

Test(debuginfod, B13_only_http_servers_may_be_named)
{
	static const char *const five[] = {
		"http://a", "http://b", "http://c", "http://d", "http://e"};
	const char *which;

	cr_assert(takes("https://debuginfod.debian.net"));
	cr_assert(takes("http://127.0.0.1:8002/path/"));
	cr_assert_not(takes("file:///etc"));
	cr_assert_not(takes("ftp://a"));
	cr_assert_not(takes("https://"));
	cr_assert_not(takes("https:///x"));
	cr_assert_not(takes("https://user@a"));
	cr_assert_not(takes("https://a b"));
	cr_assert_not(takes("https://a/?q"));
	cr_assert_not(takes(""));
	cr_assert_not_null(debuginfod_complaint(five, 5, &which));
	cr_assert_null(debuginfod_complaint(five, 4, &which));
}

Test(debuginfod, B13_build_ids_are_hex_and_never_a_path)
{
	static const char *const bad[] = {
		"", "aabb", "../../etc/passwd", "AABBCCDD", "aabbccd", "aa/bbccd"};

	cr_assert(debuginfod_id_is_good(ID_A, strlen(ID_A)));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_not(debuginfod_id_is_good(bad[i], strlen(bad[i])), "%s", bad[i]);
}

Test(debuginfod, B13_what_is_not_to_be_had_is_remembered_for_an_hour, .init = enter, .fini = leave)
{
	struct debuginfod_negative *n = calloc(1, sizeof(*n));

	cr_assert_not_null(n);
	debuginfod_negative_put(n, ID_A, NOW_S - DEBUGINFOD_AGAIN_S + 1);
	debuginfod_negative_put(n, ID_B, NOW_S - DEBUGINFOD_AGAIN_S);
	debuginfod_negative_put(n, ID_C, NOW_S + 1); /* the clock was set back */
	cr_assert_eq(debuginfod_negative_save(n), 0);
	debuginfod_negative_load(n, NOW_S);
	cr_assert(debuginfod_negative_has(n, ID_A));
	cr_assert_not(debuginfod_negative_has(n, ID_B));
	cr_assert_not(debuginfod_negative_has(n, ID_C));
	debuginfod_negative_remove(n, ID_A);
	cr_assert_not(debuginfod_negative_has(n, ID_A));
	free(n);
}

Test(debuginfod, what_is_remembered_is_bounded_and_the_oldest_goes, .init = enter, .fini = leave)
{
	struct debuginfod_negative *n = calloc(1, sizeof(*n));
	char id[DEBUGINFOD_ID_SIZE];

	cr_assert_not_null(n);
	for (unsigned int i = 0; i <= DEBUGINFOD_NEGATIVE_MAX; i++) {
		(void)snprintf(id, sizeof(id), "%08x", i);
		debuginfod_negative_put(n, id, NOW_S - 2000 + i);
	}
	cr_assert_eq(debuginfod_negative_save(n), 0);
	debuginfod_negative_load(n, NOW_S);
	cr_assert_not(debuginfod_negative_has(n, "00000000"));
	cr_assert(debuginfod_negative_has(n, "00000001"));
	cr_assert(debuginfod_negative_has(n, id));
	free(n);
}

static void store(const char *id, const char *bytes, time_t used_s)
{
	char path[DEBUGINFOD_PATH_SIZE];
	_cleanup_(closep) int fd = debuginfod_store_begin(id);
	struct timespec times[2] = {{.tv_sec = used_s}, {.tv_sec = used_s}};

	cr_assert_geq(fd, 0);
	cr_assert_eq(file_write_all(fd, bytes, strlen(bytes)), 0);
	cr_assert_eq(debuginfod_store_end(id, true), 0);
	(void)snprintf(path, sizeof(path), ".build-id/%.2s/%s.debug", id, id + 2);
	cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

Test(debuginfod, B13_the_least_recently_used_files_go, .init = enter, .fini = leave)
{
	store(ID_A, "0123456789", NOW_S - 10);
	store(ID_B, "0123456789", NOW_S - 30);
	store(ID_C, "0123456789", NOW_S - 20);
	debuginfod_store_trim(20);
	cr_assert(debuginfod_store_has(ID_A, NOW_S));
	cr_assert_not(debuginfod_store_has(ID_B, NOW_S));
	cr_assert(debuginfod_store_has(ID_C, NOW_S));
	debuginfod_store_trim(19);
	cr_assert(debuginfod_store_has(ID_A, NOW_S));
	cr_assert_not(debuginfod_store_has(ID_C, NOW_S));
}

Test(debuginfod, a_file_that_is_wanted_after_an_hour_is_fetched_anew, .init = enter, .fini = leave)
{
	store(ID_A, "x", NOW_S - DEBUGINFOD_AGAIN_S);
	cr_assert_not(debuginfod_store_has(ID_A, NOW_S));
	store(ID_A, "y", NOW_S - 1);
	cr_assert(debuginfod_store_has(ID_A, NOW_S));
}

Test(debuginfod, what_a_killed_process_left_does_not_stay, .init = enter, .fini = leave)
{
	_cleanup_(closep) int fd = debuginfod_store_begin(ID_A);

	cr_assert_geq(fd, 0);
	cr_assert_eq(debuginfod_store_begin(ID_A), -EEXIST);
	debuginfod_store_trim(1000);
	_cleanup_(closep) int again = debuginfod_store_begin(ID_A);
	cr_assert_geq(again, 0);
	cr_assert_eq(debuginfod_store_end(ID_A, false), 0);
	cr_assert_eq(access(".build-id/aa/"
			    "00000000000000000000000000000000000001.debug.tmp",
			     F_OK),
		-1);
}

Test(debuginfod, a_directory_that_others_may_write_is_not_used, .init = enter, .fini = leave)
{
	_cleanup_(buf_done) struct buf ids = BUF_INIT(100);
	static const char *const urls[] = {"http://127.0.0.1:9"};
	char dir[64];
	struct debuginfod_options o = {.dir = dir, .urls = urls, .url_count = 1};
	struct child c = {.pidfd = -1};

	(void)snprintf(dir, sizeof(dir), "%s/debug", top);
	cr_assert_eq(debuginfod_start(&o, false, &c), -ENOENT);
	cr_assert_eq(buf_append_str(&ids, ID_A "\n"), 0);
	cr_assert_eq(debuginfod_want(dir, &ids), 0);
	cr_assert_eq(chmod(dir, 0777), 0);
	cr_assert_eq(debuginfod_start(&o, false, &c), -EPERM);
	cr_assert_eq(symlink(dir, "link"), 0);
	cr_assert_eq(chmod(dir, 0700), 0);
	(void)snprintf(dir, sizeof(dir), "%s/link", top);
	cr_assert_eq(debuginfod_start(&o, false, &c), -ENOTDIR);
}
