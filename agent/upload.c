/* See upload.h. */
#include "agent/upload.h"

#include <errno.h>

#include "base/def.h"
#include "base/log.h"

#define BACKOFF_FIRST_NS   NSEC_PER_SEC
#define BACKOFF_MAX_NS     (300 * NSEC_PER_SEC)
#define RETRY_AFTER_MAX_NS (3600 * NSEC_PER_SEC)
/* A slow uplink needs 30 s for 4 MB at 1 Mbit/s; a peer that takes longer is as good as down. */
#define TIMEOUT_MS         60000

struct upload {
	struct loop *loop;
	struct daemon_http *http;
	struct spool *spool;
	struct rng *rng;
	struct loop_source *timer; /* of the back-off; NULL: none */
	struct buf body;           /* being sent */
	uint64_t place;
	uint64_t failures; /* in a row */
	uint64_t flush_timeout_ms;
	void (*flush_done)(void *data); /* NULL: not flushing */
	void *flush_data;
	struct upload_stats stats;
};

static void try_next(struct upload *u);

enum upload_verdict upload_judge(int status)
{
	if ((status >= 200 && status < 300) || status == 409)
		return UPLOAD_DELIVERED;
	switch (status) {
	/* Who we are and which way the request went can be mended; the window is not to blame. */
	case 401:
	case 403:
	case 404:
	case 405:
	case 407:
	case 408:
	case 421:
	case 425:
	case 429:
		return UPLOAD_RETRY;
	default:
		return status >= 400 && status < 500 ? UPLOAD_REFUSED : UPLOAD_RETRY;
	}
}

uint64_t upload_backoff_ns(uint64_t failures, uint64_t retry_after_ns, struct rng *r)
{
	uint64_t shift = MIN(MAX(failures, 1ULL) - 1, 20ULL);
	uint64_t wait_ns = MIN(BACKOFF_FIRST_NS << shift, BACKOFF_MAX_NS);

	if (retry_after_ns > 0) {
		wait_ns = MIN(retry_after_ns, RETRY_AFTER_MAX_NS);
		return wait_ns + rng_between(r, 0, wait_ns / 10);
	}
	return rng_between(r, wait_ns / 2, wait_ns);
}

int upload_new(struct loop *l, struct daemon_http *http, struct spool *spool, struct rng *rng,
	struct upload **ret)
{
	struct upload *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->loop = l;
	u->http = http;
	u->spool = spool;
	u->rng = rng;
	u->body = BUF_INIT(SPOOL_WINDOW_BYTES_MAX);
	*ret = u;
	return 0;
}

void upload_free(struct upload *u)
{
	if (!u)
		return;
	daemon_http_cancel(u->http, DAEMON_HTTP_PUSH);
	loop_remove(u->timer);
	buf_done(&u->body);
	free(u);
}

const struct upload_stats *upload_stats(const struct upload *u)
{
	return &u->stats;
}

static void drop_body(struct upload *u)
{
	buf_done(&u->body);
	u->body = BUF_INIT(SPOOL_WINDOW_BYTES_MAX);
}

static int on_backoff_over(struct loop *l, uint32_t events, void *data)
{
	struct upload *u = data;

	(void)l;
	(void)events;
	loop_remove(u->timer);
	u->timer = NULL;
	try_next(u);
	return 0;
}

static void end_flush(struct upload *u)
{
	void (*done)(void *data) = u->flush_done;

	u->flush_done = NULL;
	if (done)
		done(u->flush_data);
}

static void wait_and_retry(struct upload *u, uint64_t retry_after_ns)
{
	uint64_t wait_ns;

	spool_release(u->spool);
	if (u->flush_done) {
		end_flush(u); /* the spool keeps it for the next start */
		return;
	}
	wait_ns = upload_backoff_ns(++u->failures, retry_after_ns, u->rng);
	u->stats.retries++;
	loop_remove(u->timer);
	if (loop_add_timer(u->loop, wait_ns, 0, on_backoff_over, u, &u->timer) < 0)
		u->timer = NULL; /* the next window kicks */
}

static void on_reply(const struct daemon_http_reply *r, void *data)
{
	struct upload *u = data;
	enum upload_verdict verdict = r->error < 0 ? UPLOAD_RETRY : upload_judge(r->status);

	drop_body(u);
	if (verdict == UPLOAD_DELIVERED) {
		if (u->failures > 0)
			log_info("upload", "deliver again", "failures=%llu",
				(unsigned long long)u->failures);
		u->failures = 0;
		u->stats.last_error[0] = '\0';
		u->stats.delivered++;
		spool_remove(u->spool, u->place, false);
		try_next(u);
		return;
	}
	(void)snprintf(u->stats.last_error, sizeof(u->stats.last_error), "%s", r->text);
	if (verdict == UPLOAD_REFUSED) {
		u->stats.refused++;
		log_error("upload", "drop a window that the backend refuses", 0,
			"window=%llu why=\"%s\"", (unsigned long long)u->place, r->text);
		spool_remove(u->spool, u->place, false);
		try_next(u);
		return;
	}
	log_warn("upload", "deliver", r->error, "window=%llu why=\"%s\" waiting=%llu",
		(unsigned long long)u->place, r->text,
		(unsigned long long)spool_stats(u->spool).windows);
	wait_and_retry(u, r->retry_after_ns);
}

/* Reads the oldest that can be read. 1: there is one; 0: none; -errno: cannot be told now. */
static int read_oldest(struct upload *u)
{
	while (spool_first(u->spool, &u->place)) {
		int r = spool_read(u->spool, u->place, &u->body);

		if (r == 0)
			return 1;
		drop_body(u);
		if (r != -EBADMSG && r != -ENOENT && r != -EFBIG)
			return r; /* short of memory or descriptors */
		log_error("upload", "drop a damaged window", r, "window=%llu",
			(unsigned long long)u->place);
		spool_remove(u->spool, u->place, true);
	}
	return 0;
}

static void try_next(struct upload *u)
{
	struct daemon_http_request q = {
		.path = UPLOAD_PATH,
		.content_type = "application/proto",
		.timeout_ms = u->flush_done ? u->flush_timeout_ms : TIMEOUT_MS,
		.fn = on_reply,
		.data = u,
	};
	int r;

	if (u->timer || daemon_http_is_busy(u->http, DAEMON_HTTP_PUSH))
		return;
	r = read_oldest(u);
	if (r == 0) {
		end_flush(u);
		return;
	}
	q.body = u->body.data;
	q.size = u->body.size;
	if (r > 0)
		r = daemon_http_post(u->http, DAEMON_HTTP_PUSH, &q);
	if (r < 0) {
		log_warn("upload", "send", r, "window=%llu", (unsigned long long)u->place);
		drop_body(u);
		wait_and_retry(u, 0);
	}
}

void upload_kick(struct upload *u)
{
	try_next(u);
}

void upload_flush(struct upload *u, uint64_t timeout_ms, void (*done)(void *data), void *data)
{
	u->flush_timeout_ms = timeout_ms;
	u->flush_done = done;
	u->flush_data = data;
	loop_remove(u->timer);
	u->timer = NULL;
	try_next(u);
}
