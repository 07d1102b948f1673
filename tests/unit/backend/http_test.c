/* backend/http over loopback: who is let in, what bodies may be, which answers come. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <zlib.h>

#include "backend/http.h"
#include "backend/http_internal.h"
#include "base/def.h"

enum { BODY_MAX = 1000 };

static struct http_server *server;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static sem_t at_gate; /* one a handler that got there */

static void echo(void *app, struct http_request *q, struct http_response *r)
{
	size_t size;
	const void *body = http_body(q, &size);
	const char *name = http_query(q, "name");

	(void)app;
	r->status = 200;
	r->content_type = "text/plain";
	r->body = BUF_INIT(10000);
	(void)buf_printf(&r->body, "tail=%s name=%s size=%zu body=", http_tail(q),
		name ? name : "(none)", size);
	(void)buf_append(&r->body, body, size);
}

static void wait_at_gate(void *app, struct http_request *q, struct http_response *r)
{
	(void)sem_post(&at_gate); /* below its maximum */
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	echo(app, q, r);
}

static void say_nothing(void *app, struct http_request *q, struct http_response *r)
{
	(void)app;
	(void)q;
	(void)r;
}

static const struct http_route routes[] = {
	{"GET", "/open", SCOPE_NONE, 0, echo},
	{"GET", "/read/*", SCOPE_READ, 0, echo},
	{"POST", "/in", SCOPE_INGEST, BODY_MAX, echo},
	{"GET", "/gate", SCOPE_NONE, 0, wait_at_gate},
	{"GET", "/nothing", SCOPE_NONE, 0, say_nothing},
};

/* "r" reads, "i" ingests; without a token only loopback names are let in, and only to ingest. */
static bool authorize(void *app, const char *token, enum http_scope scope)
{
	(void)app;
	if (!token)
		return scope == SCOPE_INGEST;
	if (strcmp(token, "r") == 0)
		return scope == SCOPE_READ || scope == SCOPE_NONE;
	return strcmp(token, "i") == 0 && (scope == SCOPE_INGEST || scope == SCOPE_NONE);
}

static void start_with(unsigned int connections_max)
{
	struct buf why = BUF_INIT(1000);
	struct http_options o = {.listen = "127.0.0.1:0",
		.threads = 2,
		.handlers = 2,
		.idle_timeout_s = 2,
		.connections_max = connections_max,
		.authorize = authorize};

	cr_assert_eq(
		http_start(&o, routes, ARRAY_SIZE(routes), &why, &server), 0, "%s", buf_str(&why));
	buf_done(&why);
}

static void setup(void)
{
	cr_assert_eq(sem_init(&at_gate, 0, 0), 0);
	start_with(0);
}

static void teardown(void)
{
	http_stop(server);
	server = NULL;
}

TestSuite(http, .init = setup, .fini = teardown, .timeout = 60);

static int peer(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(http_port(server)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* Sends the bytes, reads until the peer closes; the status. */
static int exchange(const void *data, size_t size, char answer[65536])
{
	int fd = peer();
	size_t got = 0;
	ssize_t n;
	int status = 0;

	cr_assert_eq(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
	while (got < 65535 && (n = recv(fd, answer + got, 65535 - got, 0)) > 0)
		got += (size_t)n;
	answer[got] = '\0';
	(void)close(fd);
	(void)sscanf(answer, "HTTP/1.1 %d", &status); /* 0 when there is none */
	return status;
}

static char answer[65536];

static int request(const char *method, const char *path, const char *headers, const char *body)
{
	static char text[65536];
	int n = snprintf(text, sizeof(text),
		"%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n%s", method, path,
		headers, body);

	return exchange(text, (size_t)n, answer);
}

static bool answered(const char *text)
{
	return strstr(answer, text) != NULL;
}

Test(http, routes_answer_by_method_and_path)
{
	cr_assert_eq(request("GET", "/open?name=a%20b", "", ""), 200);
	cr_assert(answered("tail= name=a b size=0"), "%s", answer);
	cr_assert_eq(request("GET", "/read/x1", "Authorization: Bearer r\r\n", ""), 200);
	cr_assert(answered("tail=x1 name=(none)"), "%s", answer);
	cr_assert_eq(request("HEAD", "/open", "", ""), 200);
	cr_assert_not(answered("tail="));
	cr_assert_eq(request("GET", "/nowhere", "", ""), 404);
	cr_assert(answered("{\"code\":\"not_found\",\"message\":"), "%s", answer);
	cr_assert_eq(request("GET", "/read/", "Authorization: Bearer r\r\n", ""), 404);
	cr_assert_eq(request("GET", "/read/a/b", "Authorization: Bearer r\r\n", ""), 404);
	cr_assert_eq(request("DELETE", "/open", "", ""), 405);
	cr_assert(answered("Allow: GET, HEAD\r\n"), "%s", answer);
}

Test(http, tokens_are_asked_for_and_tell_401_from_403)
{
	cr_assert_eq(request("GET", "/read/x", "", ""), 401);
	cr_assert(
		answered("WWW-Authenticate: Bearer") && answered("unauthenticated"), "%s", answer);
	cr_assert_eq(request("GET", "/read/x", "Authorization: Bearer wrong\r\n", ""), 401);
	cr_assert_eq(request("GET", "/read/x", "Authorization: Basic r\r\n", ""), 401);
	cr_assert_eq(request("GET", "/read/x", "Authorization: Bearer i\r\n", ""), 403);
	cr_assert(answered("permission_denied"), "%s", answer);
	cr_assert_eq(request("GET", "/read/x?token=r", "", ""), 401, "never from the URL");
}

Test(http, other_sites_and_other_names_are_refused)
{
	static const char rebound[] =
		"POST /in HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n"
		"Content-Length: 0\r\n\r\n";

	cr_assert_eq(request("POST", "/in", "Content-Length: 0\r\n", ""), 200);
	cr_assert_eq(
		request("POST", "/in", "Content-Length: 0\r\nSec-Fetch-Site: cross-site\r\n", ""),
		403);
	cr_assert_eq(
		request("POST", "/in", "Content-Length: 0\r\nSec-Fetch-Site: same-origin\r\n", ""),
		200);
	cr_assert_eq(exchange(rebound, sizeof(rebound) - 1, answer), 403);
}

Test(http, bodies_end_at_their_limit)
{
	char body[BODY_MAX + 2];

	memset(body, 'x', sizeof(body));
	body[BODY_MAX] = '\0';
	cr_assert_eq(request("POST", "/in", "Content-Length: 1000\r\n", body), 200);
	cr_assert(answered("size=1000"));
	body[BODY_MAX] = 'x';
	body[BODY_MAX + 1] = '\0';
	cr_assert_eq(request("POST", "/in", "Content-Length: 1001\r\n", body), 413);
	cr_assert_eq(request("POST", "/in", "Content-Length: 99999999999\r\n", ""), 413);
	cr_assert_eq(
		request("POST", "/in", "Content-Length: 2000000\r\nExpect: 100-continue\r\n", ""),
		413);
	cr_assert_eq(request("GET", "/open", "Content-Length: 1\r\n", "x"), 413);
}

Test(http, chunked_bodies_end_at_their_limit_too)
{
	char chunk[2100];
	int n = snprintf(chunk, sizeof(chunk), "7d0\r\n%02000d\r\n0\r\n\r\n", 0);

	cr_assert_eq(n, 2012);
	cr_assert_eq(request("POST", "/in", "Transfer-Encoding: chunked\r\n", chunk), 413);
	cr_assert_eq(
		request("POST", "/in", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
		200);
	cr_assert(answered("size=3 body=abc"));
}

/* POST /in with gzip of size times 'z', cut_bytes left out. */
static int post_gzip(size_t size, size_t cut_bytes, unsigned int members)
{
	static char plain[1 << 20];
	static unsigned char text[1 << 17];
	size_t used = 0;
	char head[256];
	char whole[8192];
	int n;

	memset(plain, 'z', size);
	for (unsigned int i = 0; i < members; i++) {
		z_stream z = {.next_in = (Bytef *)plain,
			.avail_in = (uInt)size,
			.next_out = text + used,
			.avail_out = (uInt)(sizeof(text) - used)};

		cr_assert_eq(deflateInit2(&z, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY), Z_OK);
		cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
		used += z.total_out;
		(void)deflateEnd(&z);
	}
	used -= cut_bytes;
	n = snprintf(head, sizeof(head),
		"POST /in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: "
		"gzip\r\n"
		"Content-Length: %zu\r\n\r\n",
		used);
	cr_assert(used < 4096);
	memcpy(whole, head, (size_t)n);
	memcpy(whole + n, text, used);
	return exchange(whole, (size_t)n + used, answer);
}

Test(http, gzip_bodies_are_inflated_up_to_the_limit)
{
	cr_assert_eq(post_gzip(1000, 0, 1), 200);
	cr_assert(answered("size=1000 body=zzz"), "%s", answer);
	cr_assert_eq(post_gzip(500, 0, 2), 200);
	cr_assert(answered("size=1000"), "both members: %s", answer);
	cr_assert_eq(post_gzip(1001, 0, 1), 413);
	cr_assert_eq(post_gzip(501, 0, 2), 413);
	cr_assert_eq(post_gzip(500000, 0, 1), 413);
	cr_assert_eq(post_gzip(1000, 5, 1), 400);
	cr_assert(answered("cut short"), "%s", answer);
	cr_assert_eq(
		request("POST", "/in", "Content-Encoding: gzip\r\nContent-Length: 4\r\n", "abcd"),
		400);
	cr_assert_eq(
		request("POST", "/in", "Content-Encoding: zstd\r\nContent-Length: 4\r\n", "abcd"),
		415);
}

Test(http, a_handler_that_answers_nothing_gives_500)
{
	cr_assert_eq(request("GET", "/nothing", "", ""), 500);
	cr_assert(answered("\"internal\""));
}

Test(http, a_connection_serves_many_requests)
{
	static const char two[] =
		"GET /open?name=1 HTTP/1.1\r\nHost: h\r\n\r\n"
		"GET /open?name=2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

	cr_assert_eq(exchange(two, sizeof(two) - 1, answer), 200);
	cr_assert(answered("name=1 ") && answered("name=2 "), "%s", answer);
}

Test(http, a_peer_that_sends_bytes_too_slowly_is_closed)
{
	int fd = peer();
	struct timeval piece = {.tv_usec = 200000};
	char byte;
	ssize_t n = -1;

	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &piece, sizeof(piece)), 0);
	(void)send(fd, "GET /open HTTP/1.1\r\nX: ", 23, MSG_NOSIGNAL);
	/* 2 s of idle timeout, 1 s until it is seen; 40 times 0.2 s are more than enough */
	for (int i = 0; i < 40 && n < 0; i++) {
		if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
			break;
		n = recv(fd, &byte, 1, 0);
		if (n < 0 && errno != EAGAIN)
			break;
	}
	cr_assert(n == 0 || errno == EPIPE || errno == ECONNRESET, "still open");
	cr_assert_eq(http_stats(server).closed_slow, 1);
	(void)close(fd);
}

Test(http, idle_connections_make_room_for_new_ones)
{
	int fds[200];

	teardown();
	start_with(100);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = peer();
	cr_assert_eq(request("GET", "/open", "", ""), 200);
	cr_assert_gt(http_stats(server).evicted_idle, 50);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		(void)close(fds[i]);
}

Test(http, handlers_that_wait_do_not_hold_up_admission)
{
	static const char get[] =
		"GET /gate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	int fds[8];

	pthread_mutex_lock(&gate);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) { /* more than handlers and threads */
		fds[i] = peer();
		cr_assert_eq(
			send(fds[i], get, sizeof(get) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(get) - 1);
	}
	cr_assert_eq(sem_wait(&at_gate), 0);
	cr_assert_eq(sem_wait(&at_gate), 0); /* all handlers are taken */
	cr_assert_eq(request("GET", "/read/x", "", ""), 401);
	pthread_mutex_unlock(&gate);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		cr_assert_gt(recv(fds[i], answer, sizeof(answer), 0), 12);
		cr_assert_eq(strncmp(answer, "HTTP/1.1 200", 12), 0);
		(void)close(fds[i]);
	}
}

static void *stop_it(void *arg)
{
	http_stop(arg);
	return NULL;
}

Test(http, stopping_finishes_requests_under_way)
{
	static const char get[] =
		"GET /gate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	int fd;
	pthread_t stopper;

	pthread_mutex_lock(&gate);
	fd = peer();
	cr_assert_eq(send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(get) - 1);
	cr_assert_eq(sem_wait(&at_gate), 0);
	cr_assert_eq(pthread_create(&stopper, NULL, stop_it, server), 0);
	pthread_mutex_unlock(&gate);
	cr_assert_gt(recv(fd, answer, sizeof(answer), 0), 12);
	cr_assert_eq(strncmp(answer, "HTTP/1.1 200", 12), 0);
	(void)pthread_join(stopper, NULL);
	server = NULL;
	(void)close(fd);
}

Test(http_start, wrong_addresses_and_files_are_told, .timeout = 30)
{
	static const struct http_options wrong[] = {
		{.listen = "nonsense", .authorize = authorize},
		{.listen = ":80", .authorize = authorize},
		{.listen = "[::1:80", .authorize = authorize},
		{.listen = "127.0.0.1:99999", .authorize = authorize},
		{.listen = "127.0.0.1:0", .tls_cert = "/nonexistent", .authorize = authorize},
		{.listen = "127.0.0.1:0",
			.tls_cert = "/nonexistent",
			.tls_key = "/nonexistent",
			.authorize = authorize},
		{.listen = "127.0.0.1:0", .tls_client_ca = "/nonexistent", .authorize = authorize},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct buf why = BUF_INIT(1000);

		cr_assert_eq(http_start(&wrong[i], routes, ARRAY_SIZE(routes), &why, &server),
			-EINVAL, "%zu", i);
		cr_assert(why.size > 0 && !strchr(why.data, '\n'), "%zu: %s", i, buf_str(&why));
		buf_done(&why);
	}
}

Test(http_error, the_message_is_one_line_of_valid_json)
{
	struct http_response r = {0};

	http_error(&r, 429, "a \"b\"\nc %s", "<d>\xff");
	cr_assert_eq(r.status, 429);
	cr_assert_str_eq(buf_str(&r.body),
		"{\"code\":\"resource_exhausted\",\"message\":\"a \\\"b\\\"\xef\xbf\xbd"
		"c \\u003cd\\u003e\xef\xbf\xbd\"}\n");
	buf_done(&r.body);
}
