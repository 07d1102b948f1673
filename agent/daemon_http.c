/*
 * See daemon_http.h. libcurl says which descriptors it waits for and when it wants to be called;
 * both become sources of the loop. A request's handle lives as long as the request; connections,
 * DNS answers and TLS sessions are kept by the multi handle.
 */
#include "agent/daemon_http.h"

#include <assert.h>
#include <errno.h>
#include <strings.h>
#include <sys/epoll.h>

#include "agent/daemon_curl.h"
#include "base/def.h"
#include "base/log.h"
#include "base/str.h"

#define CONNECT_TIMEOUT_MS    10000L
#define BUFFER_BYTES          16384L /* libcurl's own default is 64 KiB each for in and out */
#define CONNECTIONS_MAX       2L
#define LINE_MAX_BYTES        512
#define CERTIFICATE_FIELD_MAX 128

/* Two transfers, each with two connection attempts (IPv6, IPv4) and a resolver's pair. */
enum { SOCKETS_MAX = 16 };

struct http_socket {
	struct daemon_http *http;
	int fd; /* -1: free */
	struct loop_source *source;
};

struct http_slot {
	CURL *easy; /* NULL: free */
	struct curl_slist *headers;
	daemon_http_fn *fn;
	void *data;
	struct buf body;
	char error[CURL_ERROR_SIZE];
};

struct daemon_http {
	struct daemon_curl curl;
	struct daemon_http_options options;
	struct loop *loop;
	CURLM *multi;
	struct loop_source *timer;
	struct http_socket sockets[SOCKETS_MAX];
	struct http_slot slots[DAEMON_HTTP_SLOTS];
};

static int error_of(CURLcode code)
{
	switch (code) {
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
		return -EBADE;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_WRITE_ERROR:
		return -EFBIG;
	default:
		return -EIO;
	}
}

static void slot_clear(struct daemon_http *h, struct http_slot *s)
{
	if (s->easy) {
		(void)h->curl.multi_remove_handle(h->multi, s->easy); /* it is there */
		h->curl.easy_cleanup(s->easy);
	}
	h->curl.slist_free_all(s->headers);
	buf_done(&s->body);
	*s = (struct http_slot){0};
}

/* The body's first line, for people: what the peer says about a status that is not 200. */
static void append_first_line(struct buf *text, const struct buf *body)
{
	const char *s = buf_str(body);

	(void)str_append_utf8(text, s, MIN(strcspn(s, "\r\n"), body->size), LINE_MAX_BYTES);
}

/* "Subject:CN = a" of the peer's own certificate, its value only; NULL when libcurl has none. */
static const char *certificate_field(const struct curl_certinfo *info, const char *key)
{
	size_t size = strlen(key);

	if (!info || info->num_of_certs < 1)
		return NULL;
	for (const struct curl_slist *l = info->certinfo[0]; l; l = l->next)
		if (strncasecmp(l->data, key, size) == 0 && l->data[size] == ':')
			return l->data + size + 1;
	return NULL;
}

/*
 * GnuTLS' libcurl says the same whatever is wrong with a certificate, so what it is, and that it has expired,
 * is added.
 */
static void append_certificate(struct daemon_http *h, struct http_slot *s, struct buf *text)
{
	static const char *const keys[] = {"Subject", "Issuer", "Start Date", "Expire Date"};
	struct curl_certinfo *info = NULL;
	const char *end;
	char now_text[32];
	time_t now = time(NULL);
	struct tm tm;

	if (h->curl.easy_getinfo(s->easy, CURLINFO_CERTINFO, &info) != CURLE_OK)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = certificate_field(info, keys[i]);

		if (!value)
			continue;
		(void)buf_printf(text, "%s%s: ", i ? ", " : "; the certificate: ", keys[i]);
		(void)str_append_utf8(text, value, strlen(value), CERTIFICATE_FIELD_MAX);
	}
	end = certificate_field(info, "Expire Date"); /* 2026-11-30 01:04:22 GMT */
	if (end && gmtime_r(&now, &tm) &&
		strftime(now_text, sizeof(now_text), "%Y-%m-%d %H:%M:%S GMT", &tm) == strlen(end) &&
		strcmp(end, now_text) < 0)
		(void)buf_append_str(text, ": it has expired");
}

static void slot_finish(struct daemon_http *h, struct http_slot *s, CURLcode code)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(4096);
	_cleanup_(buf_done) struct buf body = s->body;
	struct daemon_http_reply r = {0};
	daemon_http_fn *fn = s->fn;
	void *data = s->data;
	curl_off_t retry_after_s = 0;
	long status = 0;

	(void)h->curl.easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
	(void)h->curl.easy_getinfo(s->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
	if (code != CURLE_OK) {
		const char *why = s->error[0] ? s->error : h->curl.easy_strerror(code);

		r.error = error_of(code);
		(void)str_append_utf8(&text, why, strlen(why), LINE_MAX_BYTES);
		if (code == CURLE_PEER_FAILED_VERIFICATION)
			append_certificate(h, s, &text);
	} else {
		r.status = (int)status;
		(void)buf_printf(&text, "HTTP %ld ", status);
		append_first_line(&text, &body);
		if (status == 401)
			(void)buf_append_str(&text, " (option token-file says which is ours)");
	}
	r.retry_after_ns = retry_after_s > 0 ? (uint64_t)retry_after_s * NSEC_PER_SEC : 0;
	r.text = buf_str(&text);
	r.body = buf_str(&body);
	r.size = body.size;
	s->body = (struct buf){0};
	slot_clear(h, s);
	assert(fn);
	fn(&r, data); /* the slot is free: it may post again */
}

static void finish_done(struct daemon_http *h)
{
	CURLMsg *m;
	int left;

	while ((m = h->curl.multi_info_read(h->multi, &left))) {
		CURL *easy = m->easy_handle;
		CURLcode code = m->data.result; /* m is gone once the handle is removed */

		if (m->msg != CURLMSG_DONE)
			continue;
		for (size_t i = 0; i < DAEMON_HTTP_SLOTS; i++)
			if (h->slots[i].easy == easy)
				slot_finish(h, &h->slots[i], code);
	}
}

static void act(struct daemon_http *h, curl_socket_t fd, int events)
{
	int running;
	CURLMcode code = h->curl.multi_socket_action(h->multi, fd, events, &running);

	if (code != CURLM_OK)
		log_warn("http", "drive transfers", -EIO, "why=\"%s\"",
			h->curl.multi_strerror(code));
	finish_done(h);
}

static int on_socket_event(struct loop *l, uint32_t events, void *data)
{
	struct http_socket *s = data;
	int flags = 0;

	(void)l;
	if (s->fd < 0)
		return 0;
	flags |= events & EPOLLIN ? CURL_CSELECT_IN : 0;
	flags |= events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
	flags |= events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
	act(s->http, s->fd, flags);
	return 0;
}

static int on_timer(struct loop *l, uint32_t events, void *data)
{
	struct daemon_http *h = data;

	(void)l;
	(void)events;
	loop_remove(h->timer);
	h->timer = NULL;
	act(h, CURL_SOCKET_TIMEOUT, 0);
	return 0;
}

/* libcurl's CURLMOPT_TIMERFUNCTION */
static int set_timer(CURLM *multi, long timeout_ms, void *data)
{
	struct daemon_http *h = data;

	(void)multi;
	loop_remove(h->timer);
	h->timer = NULL;
	if (timeout_ms < 0)
		return 0;
	return loop_add_timer(
		       h->loop, (uint64_t)timeout_ms * NSEC_PER_MSEC, 0, on_timer, h, &h->timer) < 0
		       ? -1
		       : 0;
}

static struct http_socket *free_socket(struct daemon_http *h)
{
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		if (h->sockets[i].fd < 0)
			return &h->sockets[i];
	return NULL;
}

static void forget_socket(struct http_socket *s)
{
	loop_remove(s->source);
	s->source = NULL;
	s->fd = -1;
}

/* libcurl's CURLMOPT_SOCKETFUNCTION */
static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
	struct daemon_http *h = data;
	struct http_socket *s = socket_data;
	uint32_t events = 0;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (s)
			forget_socket(s);
		return 0;
	}
	if (!s)
		s = free_socket(h);
	if (!s)
		return -1;
	loop_remove(s->source); /* the loop has no change of events */
	*s = (struct http_socket){.http = h, .fd = fd};
	events |= what & CURL_POLL_IN ? EPOLLIN : 0U;
	events |= what & CURL_POLL_OUT ? EPOLLOUT : 0U;
	if (loop_add_fd(h->loop, fd, events, on_socket_event, s, &s->source) < 0) {
		s->fd = -1;
		return -1;
	}
	return h->curl.multi_assign(h->multi, fd, s) == CURLM_OK ? 0 : -1;
}

static size_t on_body(char *data, size_t size, size_t count, void *slot)
{
	struct http_slot *s = slot;

	return buf_append(&s->body, data, size * count) < 0 ? 0 : size * count;
}

int daemon_http_new(struct loop *l, const struct daemon_http_options *o, struct buf *why,
	struct daemon_http **ret)
{
	struct daemon_http *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	h->options = *o;
	h->loop = l;
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		h->sockets[i].fd = -1;
	r = daemon_curl_load(&h->curl, why);
	if (r == 0) {
		h->multi = h->curl.multi_init();
		if (!h->multi)
			r = -ENOMEM;
	}
	if (r < 0) {
		free(h);
		return r;
	}
	(void)h->curl.multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	(void)h->curl.multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	(void)h->curl.multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	(void)h->curl.multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	(void)h->curl.multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_MAX);
	*ret = h;
	return 0;
}

void daemon_http_free(struct daemon_http *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < DAEMON_HTTP_SLOTS; i++)
		slot_clear(h, &h->slots[i]);
	(void)h->curl.multi_cleanup(h->multi); /* also forgets its sockets, through us */
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		forget_socket(&h->sockets[i]);
	loop_remove(h->timer);
	free(h);
}

static int add_header(
	struct daemon_http *h, struct http_slot *s, const char *name, const char *value)
{
	_cleanup_(buf_done) struct buf line = BUF_INIT(8192);
	struct curl_slist *longer;
	int r = buf_printf(&line, "%s:%s%s", name, *value ? " " : "", value);

	if (r < 0)
		return r;
	longer = h->curl.slist_append(s->headers, buf_str(&line));
	if (!longer)
		return -ENOMEM;
	s->headers = longer;
	return 0;
}

static int add_headers(
	struct daemon_http *h, struct http_slot *s, const struct daemon_http_request *q)
{
	_cleanup_(buf_done) struct buf bearer = BUF_INIT(8192);
	int r = add_header(h, s, "Content-Type", q->content_type);

	if (r == 0) /* one round trip less, and no second's wait with peers that ignore it */
		r = add_header(h, s, "Expect", "");
	if (r < 0 || !*h->options.token)
		return r;
	r = buf_printf(&bearer, "Bearer %s", h->options.token);
	return r < 0 ? r : add_header(h, s, "Authorization", buf_str(&bearer));
}

/* A refused option would silently change what is asked for, so each is checked. */
#define SET(option, value)                                                   \
	do {                                                                 \
		if (h->curl.easy_setopt(s->easy, option, value) != CURLE_OK) \
			return -EINVAL;                                      \
	} while (0)

static int set_tls(struct daemon_http *h, struct http_slot *s)
{
	const struct daemon_http_options *o = &h->options;

	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	SET(CURLOPT_CERTINFO, 1L); /* for append_certificate */
	if (*o->ca_file)
		SET(CURLOPT_CAINFO, o->ca_file);
	if (*o->cert_file)
		SET(CURLOPT_SSLCERT, o->cert_file);
	if (*o->key_file)
		SET(CURLOPT_SSLKEY, o->key_file);
	return 0;
}

static int set_request(
	struct daemon_http *h, struct http_slot *s, const struct daemon_http_request *q)
{
	_cleanup_(buf_done) struct buf url = BUF_INIT(8192);
	int r = buf_printf(&url, "%s%s", h->options.url, q->path);

	if (r < 0)
		return r;
	SET(CURLOPT_URL, buf_str(&url)); /* copied */
	SET(CURLOPT_POST, 1L);
	SET(CURLOPT_POSTFIELDS, q->body ? q->body : "");
	SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->size);
	SET(CURLOPT_HTTPHEADER, s->headers);
	if (h->options.user_agent)
		SET(CURLOPT_USERAGENT, h->options.user_agent);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)MIN(q->timeout_ms, (uint64_t)CONNECT_TIMEOUT_MS));
	SET(CURLOPT_TIMEOUT_MS, (long)q->timeout_ms);
	SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	SET(CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, s);
	SET(CURLOPT_ERRORBUFFER, s->error);
	return set_tls(h, s);
}

int daemon_http_post(
	struct daemon_http *h, enum daemon_http_slot slot, const struct daemon_http_request *q)
{
	struct http_slot *s = &h->slots[slot];
	int r = -ENOMEM;

	if (s->easy)
		return -EBUSY;
	*s = (struct http_slot){
		.fn = q->fn, .data = q->data, .body = BUF_INIT(DAEMON_HTTP_REPLY_MAX)};
	s->easy = h->curl.easy_init();
	if (s->easy)
		r = add_headers(h, s, q);
	if (r == 0)
		r = set_request(h, s, q);
	if (r == 0 && h->curl.multi_add_handle(h->multi, s->easy) != CURLM_OK)
		r = -EIO;
	if (r < 0)
		slot_clear(h, s);
	return r;
}

bool daemon_http_is_busy(const struct daemon_http *h, enum daemon_http_slot slot)
{
	return h->slots[slot].easy;
}

void daemon_http_cancel(struct daemon_http *h, enum daemon_http_slot slot)
{
	slot_clear(h, &h->slots[slot]);
}
