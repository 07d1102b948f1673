/*
 * `flame-agent __fetch CA-FILE URL...`: fetches what DIR/wanted names, as far as it is to be asked for,
 * and is gone. It gives up its capabilities first. DEBUGINFOD_TOTAL_MS for all of it; a server that does
 * not answer is not asked again. What it asks for is noted as not to be had before it asks, and
 * struck out when it came: whatever ends the process, nobody is asked again at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "agent/daemon_curl.h"
#include "agent/debuginfod_store.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/str.h"

enum { ALARM_S = DEBUGINFOD_TOTAL_MS / 1000 + 5, CPU_S = 30, CURL_URL_MAX = 1536 };
static const rlim_t MEMORY_MAX = 512UL << 20;

struct fetcher {
	struct daemon_curl curl;
	CURL *easy;
	const char *ca_file;
	char **urls;
	size_t url_count;
	bool is_dead[DEBUGINFOD_URLS_MAX];
	uint64_t deadline_ns;
	struct debuginfod_negative negative;
	char ids[DEBUGINFOD_FILES_MAX][DEBUGINFOD_ID_SIZE];
	size_t id_count;
};

struct download {
	int fd;
	uint64_t bytes;
};

static int confine(void)
{
	static const struct {
		__rlimit_resource_t what;
		rlim_t max;
	} limits[] = {{RLIMIT_AS, MEMORY_MAX}, {RLIMIT_CPU, CPU_S}, {RLIMIT_CORE, 0},
		{RLIMIT_NOFILE, 64}};
	cap_t none = cap_init();
	int r = none && cap_set_proc(none) == 0 ? 0 : -EPERM;

	(void)cap_free(none); /* NULL, too */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(limits); i++)
		if (setrlimit(limits[i].what, &(struct rlimit){limits[i].max, limits[i].max}) < 0)
			r = -errno;
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	(void)signal(SIGXFSZ, SIG_IGN); /* a limit of our starter is an error of write() */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)alarm(ALARM_S); /* there was none before */
	return r;
}

static uint64_t now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	return (uint64_t)now.tv_sec;
}

/* What is wanted and may be asked for. */
static int read_wanted(struct fetcher *f)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(DEBUGINFOD_WANTED_BYTES_MAX);
	uint64_t now = now_s();
	int r = file_read_own("wanted", &text);

	if (r < 0)
		return r;
	if (unlink("wanted") < 0)
		return -errno;
	debuginfod_negative_load(&f->negative, now);
	for (const char *at = buf_str(&text); *at && f->id_count < DEBUGINFOD_FILES_MAX;
		at += *at == '\n') {
		size_t size = strcspn(at, "\n");
		char *id = f->ids[f->id_count];

		if (debuginfod_id_is_good(at, size)) {
			(void)snprintf(id, DEBUGINFOD_ID_SIZE, "%.*s", (int)size, at);
			if (!debuginfod_negative_has(&f->negative, id) &&
				!debuginfod_store_has(id, now)) {
				debuginfod_negative_put(&f->negative, id, now);
				f->id_count++;
			}
		}
		at += size;
	}
	return f->id_count > 0 ? debuginfod_negative_save(&f->negative) : 0;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *data)
{
	struct download *d = data;

	d->bytes += size * count;
	if (d->bytes > DEBUGINFOD_FILE_BYTES_MAX || file_write_all(d->fd, bytes, size * count) < 0)
		return 0;
	return count;
}

static void prepare(struct fetcher *f, const char *url, struct download *d, uint64_t left_ms)
{
	struct daemon_curl *c = &f->curl;
	/* What began encrypted stays so. */
	const char *protocols = str_has_prefix(url, "https://") ? "https" : "http,https";

	c->easy_reset(f->easy);
	(void)c->easy_setopt(f->easy, CURLOPT_URL, url);
	(void)c->easy_setopt(f->easy, CURLOPT_PROTOCOLS_STR, protocols);
	(void)c->easy_setopt(f->easy, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
	(void)c->easy_setopt(f->easy, CURLOPT_FOLLOWLOCATION, 1L);
	(void)c->easy_setopt(f->easy, CURLOPT_MAXREDIRS, (long)DEBUGINFOD_REDIRECTS_MAX);
	(void)c->easy_setopt(f->easy, CURLOPT_PROXY, "");
	(void)c->easy_setopt(f->easy, CURLOPT_NOSIGNAL, 1L);
	(void)c->easy_setopt(f->easy, CURLOPT_FAILONERROR, 1L);
	(void)c->easy_setopt(f->easy, CURLOPT_USERAGENT, "flame-agent");
	(void)c->easy_setopt(f->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)DEBUGINFOD_CONNECT_MS);
	(void)c->easy_setopt(f->easy, CURLOPT_TIMEOUT_MS, (long)left_ms);
	(void)c->easy_setopt(
		f->easy, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)DEBUGINFOD_FILE_BYTES_MAX);
	(void)c->easy_setopt(f->easy, CURLOPT_WRITEFUNCTION, take_body);
	(void)c->easy_setopt(f->easy, CURLOPT_WRITEDATA, d);
	if (*f->ca_file)
		(void)c->easy_setopt(f->easy, CURLOPT_CAINFO, f->ca_file);
}

/* One file of one server. 0; -ENOENT: it has none; -EIO. */
static int fetch_from(struct fetcher *f, size_t server, const char *id)
{
	const char *base = f->urls[server];
	char url[CURL_URL_MAX];
	uint64_t now_ns = loop_now_ns();
	struct download d = {.fd = -1};
	size_t size = strlen(base);
	long status = 0;

	if (now_ns + NSEC_PER_MSEC >= f->deadline_ns)
		return -EIO;
	(void)snprintf(url, sizeof(url), "%.*s/buildid/%s/debuginfo",
		(int)(size - (base[size - 1] == '/')), base, id); /* fits */
	_cleanup_(closep) int fd = debuginfod_store_begin(id);
	if (fd < 0) {
		log_warn("debuginfod", "make a file", fd, "id=%s", id);
		return -EIO;
	}
	d.fd = fd;
	prepare(f, url, &d, (f->deadline_ns - now_ns) / NSEC_PER_MSEC);
	CURLcode code = f->curl.easy_perform(f->easy);

	(void)f->curl.easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	bool is_good = code == CURLE_OK && status == 200 && d.bytes > 0;
	int r = debuginfod_store_end(id, is_good);

	if (is_good && r == 0) {
		log_info("debuginfod", "fetch", "url=%s bytes=%llu", url,
			(unsigned long long)d.bytes);
		return 0;
	}
	if (status == 404)
		return -ENOENT;
	f->is_dead[server] = code == CURLE_OPERATION_TIMEDOUT || code == CURLE_COULDNT_CONNECT ||
			     code == CURLE_COULDNT_RESOLVE_HOST;
	log_warn("debuginfod", "fetch", r, "url=%s status=%ld bytes=%llu why=\"%s\"", url, status,
		(unsigned long long)d.bytes, f->curl.easy_strerror(code));
	return -EIO;
}

static int fetch_all(struct fetcher *f)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < f->id_count; i++) {
		int e = -ENOENT;

		debuginfod_store_trim(DEBUGINFOD_BYTES_MAX - DEBUGINFOD_FILE_BYTES_MAX);
		for (size_t k = 0; e < 0 && k < f->url_count; k++)
			if (!f->is_dead[k])
				e = fetch_from(f, k, f->ids[i]);
		if (e < 0)
			continue;
		debuginfod_negative_remove(&f->negative, f->ids[i]);
		r = debuginfod_negative_save(&f->negative);
	}
	return r;
}

static int run(struct fetcher *f)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(1024);
	int r = confine();

	f->deadline_ns = loop_now_ns() + DEBUGINFOD_TOTAL_MS * NSEC_PER_MSEC;
	if (r == 0 && fchdir(STDIN_FILENO) < 0)
		r = -errno;
	if (r == 0)
		r = read_wanted(f);
	if (r == 0 && f->id_count > 0) {
		r = daemon_curl_load(&f->curl, &why);
		f->easy = r == 0 ? f->curl.easy_init() : NULL;
		if (r == 0 && !f->easy)
			r = -ENOMEM;
		if (r == 0)
			r = fetch_all(f);
		if (f->easy)
			f->curl.easy_cleanup(f->easy);
	}
	if (r < 0)
		log_warn("debuginfod", "fetch", r, "why=\"%s\"", buf_str(&why));
	return r;
}

int debuginfod_main(int argc, char **argv)
{
	struct fetcher *f = calloc(1, sizeof(*f));
	int r = -EINVAL;

	if (f && argc >= 3 && argc <= 2 + DEBUGINFOD_URLS_MAX) {
		f->ca_file = argv[1];
		f->urls = argv + 2;
		f->url_count = (size_t)(argc - 2);
		r = run(f);
	}
	free(f);
	return r == 0 ? 0 : 1;
}
