/* Uploading: the policy as numbers, and the queue against a peer on loopback that says what it is told. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/upload.h"
#include "base/child.h"
#include "base/def.h"
#include "base/log.h"

Test(upload, only_an_acknowledged_window_counts_as_delivered)
{
	cr_assert_eq(upload_judge(200), UPLOAD_DELIVERED);
	cr_assert_eq(upload_judge(204), UPLOAD_DELIVERED);
	cr_assert_eq(upload_judge(409), UPLOAD_DELIVERED, "the backend has it already");
	cr_assert_eq(upload_judge(0), UPLOAD_RETRY);
	cr_assert_eq(upload_judge(301), UPLOAD_RETRY);
}

Test(upload, what_is_wrong_with_the_window_is_refused_and_what_can_be_mended_is_retried)
{
	static const int refused[] = {400, 406, 410, 411, 413, 415, 422, 431};
	static const int retried[] = {401, 403, 404, 405, 407, 408, 425, 429, 500, 502, 503, 507};

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		cr_assert_eq(upload_judge(refused[i]), UPLOAD_REFUSED, "%d", refused[i]);
	for (size_t i = 0; i < ARRAY_SIZE(retried); i++)
		cr_assert_eq(upload_judge(retried[i]), UPLOAD_RETRY, "%d", retried[i]);
}

Test(upload, the_wait_doubles_up_to_five_minutes_with_half_of_it_drawn)
{
	struct rng r = rng_seeded(1);

	for (uint64_t n = 1; n < 40; n++) {
		uint64_t full = MIN(NSEC_PER_SEC << MIN(n - 1, 20ULL), 300 * NSEC_PER_SEC);
		uint64_t lowest = UINT64_MAX, highest = 0;

		for (int i = 0; i < 200; i++) {
			uint64_t ns = upload_backoff_ns(n, 0, &r);

			lowest = MIN(lowest, ns);
			highest = MAX(highest, ns);
		}
		cr_assert_geq(lowest, full / 2);
		cr_assert_leq(highest, full);
		cr_assert_gt(highest - lowest, full / 4, "it is drawn");
	}
}

Test(upload, what_the_peer_asks_for_is_waited_for_up_to_an_hour)
{
	struct rng r = rng_seeded(1);

	for (int i = 0; i < 100; i++) {
		uint64_t ns = upload_backoff_ns(1, 30 * NSEC_PER_SEC, &r);

		cr_assert_geq(ns, 30 * NSEC_PER_SEC);
		cr_assert_leq(ns, 33 * NSEC_PER_SEC);
		ns = upload_backoff_ns(1, 86400 * NSEC_PER_SEC, &r);
		cr_assert_leq(ns, 3960 * NSEC_PER_SEC);
	}
}

/* --- a peer */

enum { PEER_REQUESTS_MAX = 16 };

struct peer {
	int fd;
	uint16_t port;
	pthread_t thread;
	const char *answers[PEER_REQUESTS_MAX]; /* one a request, NULL: close without one */
	size_t answer_count;
	char bodies[PEER_REQUESTS_MAX][64];
	size_t requests;
};

static size_t content_length(const char *head)
{
	const char *at = strcasestr(head, "content-length:");

	return at ? strtoull(at + strlen("content-length:"), NULL, 10) : 0;
}

/* One request from the connection; false at its end. */
static bool read_request(int fd, char *body)
{
	char bytes[8192];
	size_t size = 0;
	char *end;

	for (;;) {
		ssize_t n = read(fd, bytes + size, sizeof(bytes) - 1 - size);

		if (n <= 0)
			return false;
		size += (size_t)n;
		bytes[size] = '\0';
		end = strstr(bytes, "\r\n\r\n");
		if (end && size >= (size_t)(end + 4 - bytes) + content_length(bytes))
			break;
	}
	(void)snprintf(body, 64, "%.60s", end + 4);
	return true;
}

static void serve_connection(struct peer *p, int fd)
{
	while (p->requests < p->answer_count && read_request(fd, p->bodies[p->requests])) {
		const char *answer = p->answers[p->requests++];

		if (!answer || write(fd, answer, strlen(answer)) < 0 ||
			!strstr(answer, "Content-Length: 0"))
			return;
	}
}

static void *serve(void *data)
{
	struct peer *p = data;

	while (p->requests < p->answer_count) {
		int fd = accept(p->fd, NULL, NULL);

		if (fd < 0)
			return NULL;
		serve_connection(p, fd);
		(void)close(fd);
	}
	return NULL;
}

static void peer_start(struct peer *p)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);

	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(p->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	cr_assert_eq(listen(p->fd, 8), 0);
	cr_assert_eq(getsockname(p->fd, (struct sockaddr *)&a, &size), 0);
	p->port = ntohs(a.sin_port);
	cr_assert_eq(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void peer_stop(struct peer *p)
{
	(void)pthread_join(p->thread, NULL);
	(void)close(p->fd);
}

struct setting {
	char dir[32];
	char url[64];
	struct loop *loop;
	struct daemon_http *http;
	struct spool *spool;
	struct rng rng;
	struct upload *upload;
};

static void setting_open(struct setting *s, uint16_t port)
{
	struct spool_limits limits = {.bytes_max = 1 << 20, .windows_max = 100};
	struct daemon_http_options o = {
		.url = s->url, .token = "secret", .ca_file = "", .cert_file = "", .key_file = ""};
	struct buf why = BUF_INIT(1024);

	log_set_level(LOG_LEVEL_ERROR);
	(void)snprintf(s->dir, sizeof(s->dir), "/tmp/upload_test.XXXXXX");
	cr_assert_not_null(mkdtemp(s->dir));
	(void)snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%u", port);
	s->rng = rng_seeded(1);
	cr_assert_eq(loop_new(&s->loop), 0);
	cr_assert_eq(daemon_http_new(s->loop, &o, &why, &s->http), 0, "%s", buf_str(&why));
	cr_assert_eq(spool_open(s->dir, &limits, &s->spool), 0);
	cr_assert_eq(upload_new(s->loop, s->http, s->spool, &s->rng, &s->upload), 0);
	buf_done(&why);
}

static void setting_close(struct setting *s)
{
	char *argv[] = {(char *)"rm", (char *)"-rf", s->dir, NULL};

	upload_free(s->upload);
	daemon_http_free(s->http);
	spool_free(s->spool);
	loop_free(s->loop);
	(void)child_run(argv, NULL, 10000);
}

static void put(struct setting *s, const char *text)
{
	char path[SPOOL_PATH_MAX];
	uint64_t place;

	cr_assert_eq(spool_reserve(s->spool, path, &place), 0);
	cr_assert_eq(spool_write(path, text, strlen(text)), 0);
	cr_assert_eq(spool_take_in(s->spool, place), 0);
}

static int look(struct loop *l, uint32_t events, void *data)
{
	struct setting *s = data;

	(void)events;
	if (spool_stats(s->spool).windows == 0)
		loop_stop(l);
	return 0;
}

static int give_up(struct loop *l, uint32_t events, void *data)
{
	(void)l;
	(void)events;
	(void)data;
	return -ETIMEDOUT;
}

/* Until the spool is empty. */
static void run(struct setting *s)
{
	struct loop_source *a, *b;

	cr_assert_eq(loop_add_timer(s->loop, NSEC_PER_MSEC, 5 * NSEC_PER_MSEC, look, s, &a), 0);
	cr_assert_eq(loop_add_timer(s->loop, 20 * NSEC_PER_SEC, 0, give_up, s, &b), 0);
	upload_kick(s->upload);
	cr_assert_eq(loop_run(s->loop), 0);
}

#define OK   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define BAD  "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
#define BUSY "HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
#define CUT  "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"

Test(upload, windows_arrive_in_order_and_a_refused_one_does_not_block)
{
	struct peer p = {.answers = {OK, BAD, OK}, .answer_count = 3};
	struct setting s;

	peer_start(&p);
	setting_open(&s, p.port);
	put(&s, "one");
	put(&s, "two");
	put(&s, "three");
	run(&s);
	peer_stop(&p);
	cr_assert_str_eq(p.bodies[0], "one");
	cr_assert_str_eq(p.bodies[1], "two");
	cr_assert_str_eq(p.bodies[2], "three");
	cr_assert_eq(upload_stats(s.upload)->delivered, 2);
	cr_assert_eq(upload_stats(s.upload)->refused, 1);
	setting_close(&s);
}

Test(upload, a_cut_answer_is_no_acknowledgement)
{
	struct peer p = {.answers = {CUT, OK}, .answer_count = 2};
	struct setting s;

	peer_start(&p);
	setting_open(&s, p.port);
	put(&s, "one");
	run(&s);
	peer_stop(&p);
	cr_assert_str_eq(p.bodies[0], "one");
	cr_assert_str_eq(p.bodies[1], "one");
	cr_assert_eq(upload_stats(s.upload)->delivered, 1);
	cr_assert_eq(upload_stats(s.upload)->retries, 1);
	setting_close(&s);
}

Test(upload, retry_after_is_waited_for)
{
	struct peer p = {.answers = {BUSY, OK}, .answer_count = 2};
	struct setting s;
	uint64_t before = loop_now_ns();

	peer_start(&p);
	setting_open(&s, p.port);
	put(&s, "one");
	run(&s);
	peer_stop(&p);
	cr_assert_geq(loop_now_ns() - before, NSEC_PER_SEC);
	cr_assert_eq(upload_stats(s.upload)->delivered, 1);
	setting_close(&s);
}

static void note(void *data)
{
	struct setting *s = data;

	loop_stop(s->loop);
}

Test(upload, a_flush_ends_at_the_first_failure_and_keeps_the_window)
{
	struct peer p = {.answers = {OK, NULL}, .answer_count = 2};
	struct loop_source *timer;
	struct setting s;

	peer_start(&p);
	setting_open(&s, p.port);
	put(&s, "one");
	put(&s, "two");
	cr_assert_eq(loop_add_timer(s.loop, 20 * NSEC_PER_SEC, 0, give_up, &s, &timer), 0);
	upload_flush(s.upload, 2000, note, &s);
	cr_assert_eq(loop_run(s.loop), 0);
	peer_stop(&p);
	cr_assert_eq(spool_stats(s.spool).windows, 1);
	cr_assert_str_eq(p.bodies[1], "two");
	setting_close(&s);
}
