/*
 * fleet --port P --pid BACKEND [--agents N] [--seconds S] [--interval S] [--connections C] [--per-connection K]
 *
 * A fleet of agents that only heartbeat, as one epoll client on loopback, and what that costs the backend. Agent
 * I is due at (I + 1/2) / N of every interval, so the rate is even: 100,000 agents every 30 s are 3,333 a second. A
 * beat that is due takes an idle connection or waits for one; its latency counts from when it was due, so a backend
 * that stalls cannot hide behind a client that waits for it. A connection ends after K beats (0: never): real
 * agents' connections are too many to be kept, so K = 1 is what a fleet of this size looks like.
 *
 * First every agent heartbeats once, as fast as the connections go, because a host that is known costs less than
 * a new one; only then the clocks start. The backend's CPU is the sum of its threads' /proc/PID/task/TID/schedstat
 * (the file without task/ has the first thread only).
 *
 * Prints one JSON object on stdout. Exit 1 and no figures when they would not be those of a backend that keeps up: an
 * answer that was not 200, a beat that was not answered, or a backlog at the end. Exit 2 for wrong arguments.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"

enum { CONNECTIONS_MAX = 3000, REQUEST_BYTES = 2048, REPLY_BYTES = 4096, BACKLOG_MAX_MS = 500 };

struct conn {
	int fd;            /* -1: closed */
	bool busy;         /* a beat is under way */
	uint64_t beats;    /* since it was opened */
	uint64_t due_ns;   /* of the beat under way */
	size_t sent, size; /* of request */
	size_t received;   /* of reply */
	char request[REQUEST_BYTES], reply[REPLY_BYTES];
};

static struct {
	uint64_t port, pid, agents, seconds, interval_s, connections, per_connection;
} conf = {.agents = 100000, .seconds = 30, .interval_s = 30, .connections = 256};

static struct conn *conns;
static size_t *idle; /* a stack of connections that wait for a beat */
static size_t idle_count;
static int epoll_fd;
static uint64_t answered, opened, not_200;
static uint32_t *latencies_us; /* NULL: not measured yet */
static size_t latencies_max;

static void die(const char *what, int error)
{
	(void)fprintf(
		stderr, "fleet: %s%s%s\n", what, error ? ": " : "", error ? strerror(error) : "");
	exit(error == EINVAL ? 2 : 1);
}

static void conn_open(size_t i)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)conf.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u64 = i};
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		die("socket", errno);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
		die("connect", errno);
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		die("epoll", errno);
	conns[i].fd = fd;
	conns[i].beats = 0;
	opened++;
}

static void conn_close(size_t i)
{
	(void)close(conns[i].fd);
	conns[i].fd = -1;
}

/* What agent/heartbeat.c writes for a dormant agent that has run for a while. */
static size_t write_request(uint64_t agent, uint64_t round, char out[REQUEST_BYTES])
{
	struct timespec now;
	char body[REQUEST_BYTES - 256];
	int size, all;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail */
	size = snprintf(body, sizeof(body),
		"{\"schema\":\"flame-heartbeat/1\",\"host\":\"host-%06llu.fleet.example\","
		"\"instance\":\"%08llx-0000-4000-8000-%012llx\","
		"\"boot_id\":\"5c6f7f8e-0000-4000-8000-%012llx\",\"agent_version\":\"1.0-fleet\","
		"\"kernel\":\"6.1.0-18-amd64\",\"arch\":\"x86_64\",\"cpus\":8,"
		"\"time_unix_ms\":%lld,\"state\":\"dormant\",\"state_text\":\"\","
		"\"can\":{\"cpu\":\"ok\",\"wall\":\"this agent records the view cpu only\"},"
		"\"own\":{\"cpu_ns\":%llu,\"rss_bytes\":%llu,\"kernel_bytes\":0,\"uptime_ns\":%llu}"
		","
		"\"losses\":{\"samples\":0,\"windows_dropped\":0},"
		"\"spool\":{\"windows\":0,\"bytes\":0},\"acks\":[]}",
		(unsigned long long)agent, (unsigned long long)(agent * 2654435761U & 0xffffffff),
		(unsigned long long)agent, (unsigned long long)agent,
		(long long)now.tv_sec * 1000 + now.tv_nsec / 1000000,
		(unsigned long long)(round * 420000 + agent), 10600000 + (agent % 64 * 4096ULL),
		(unsigned long long)(round * conf.interval_s * NSEC_PER_SEC + agent));
	all = snprintf(out, REQUEST_BYTES,
		"POST /api/v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1:%llu\r\nAccept: */*\r\n"
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		(unsigned long long)conf.port, size, body);
	if (size >= (int)sizeof(body) || all >= REQUEST_BYTES)
		die("a heartbeat does not fit", 0);
	return (size_t)all;
}

static void conn_send(struct conn *c)
{
	while (c->busy && c->sent < c->size) {
		ssize_t n = send(c->fd, c->request + c->sent, c->size - c->sent, MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
			return; /* EPOLLOUT comes */
		if (n < 0)
			die("send a heartbeat", errno);
		c->sent += (size_t)n;
	}
}

static void beat(uint64_t agent, uint64_t round, uint64_t due_ns)
{
	size_t i = idle[--idle_count];
	struct conn *c = &conns[i];

	if (c->fd < 0)
		conn_open(i);
	c->size = write_request(agent, round, c->request);
	c->sent = c->received = 0;
	c->due_ns = due_ns;
	c->busy = true;
	conn_send(c);
}

/* Whether the reply is whole; its body follows the headers at once. */
static bool reply_is_whole(struct conn *c)
{
	const char *body, *length;
	uint64_t size;

	c->reply[c->received] = '\0';
	body = strstr(c->reply, "\r\n\r\n");
	length = body ? strstr(c->reply, "Content-Length: ") : NULL;
	if (!length)
		return false;
	size = strtoull(length + strlen("Content-Length: "), NULL, 10);
	return (size_t)(c->reply + c->received - (body + 4)) >= size;
}

static void conn_answered(size_t i)
{
	struct conn *c = &conns[i];
	uint64_t took_us = (loop_now_ns() - c->due_ns) / 1000;

	if (strncmp(c->reply, "HTTP/1.1 200 ", 13) != 0 && not_200++ == 0)
		(void)fprintf(
			stderr, "fleet: the first answer that is not 200: %.300s\n", c->reply);
	if (latencies_us && answered < latencies_max)
		latencies_us[answered] = (uint32_t)MIN(took_us, (uint64_t)UINT32_MAX);
	answered++;
	c->busy = false;
	if (++c->beats == conf.per_connection)
		conn_close(i);
	idle[idle_count++] = i;
}

static void conn_receive(size_t i)
{
	struct conn *c = &conns[i];

	while (c->fd >= 0) {
		ssize_t n = recv(c->fd, c->reply + c->received, REPLY_BYTES - 1 - c->received, 0);

		if (n < 0 && (errno == EAGAIN || errno == ENOTCONN))
			return;
		if (n <= 0 && c->busy)
			die("a connection ended before its answer", n < 0 ? errno : 0);
		if (n <= 0) { /* the backend's idle timeout, or eviction; reopened when needed */
			conn_close(i);
			return;
		}
		c->received += (size_t)n;
		if (reply_is_whole(c))
			conn_answered(i);
	}
}

static void wait_for_events(int timeout_ms)
{
	struct epoll_event events[256];
	int n = epoll_wait(epoll_fd, events, ARRAY_SIZE(events), timeout_ms);

	for (int k = 0; k < n; k++) {
		size_t i = events[k].data.u64;

		if (conns[i].fd < 0)
			continue;
		if (events[k].events & EPOLLOUT)
			conn_send(&conns[i]);
		if (events[k].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			conn_receive(i);
	}
}

/* Every agent once, so that all hosts are known. */
static void introduce(void)
{
	uint64_t before = answered, agent = 0;

	while (answered - before < conf.agents) {
		while (agent < conf.agents && idle_count > 0)
			beat(agent++, 0, loop_now_ns());
		wait_for_events(1000);
	}
}

/* CPU time of all the backend's threads. */
static uint64_t backend_cpu_ns(void)
{
	char path[300];
	uint64_t sum = 0;
	const struct dirent *e;
	DIR *d;

	(void)snprintf(path, sizeof(path), "/proc/%llu/task", (unsigned long long)conf.pid);
	d = opendir(path);
	if (!d)
		die(path, errno);
	while ((e = readdir(d))) {
		unsigned long long ns = 0;
		FILE *f;

		if (*e->d_name == '.')
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%llu/task/%.16s/schedstat",
			(unsigned long long)conf.pid, e->d_name);
		f = fopen(path, "re");
		if (!f)
			die(path, errno); /* its threads live as long as it does */
		if (fscanf(f, "%llu", &ns) != 1)
			die(path, EIO);
		(void)fclose(f);
		sum += ns;
	}
	(void)closedir(d);
	return sum;
}

/* The beats that are due until the end, each when it is due. Returns how late the last was sent. */
static uint64_t run(uint64_t start_ns, uint64_t beats, uint64_t *ret_late_max_ns)
{
	uint64_t first = answered, next = 0, late_ns = 0;
	double gap_ns = (double)conf.interval_s * 1e9 / (double)conf.agents;
	uint64_t deadline_ns = start_ns + (conf.seconds + 30) * NSEC_PER_SEC;

	*ret_late_max_ns = 0;
	while (answered - first < beats && loop_now_ns() < deadline_ns) {
		uint64_t now = loop_now_ns();
		uint64_t due = start_ns + (uint64_t)(((double)next + 0.5) * gap_ns);

		while (next < beats && due <= now && idle_count > 0) {
			late_ns = now - due;
			*ret_late_max_ns = MAX(*ret_late_max_ns, late_ns);
			beat(next % conf.agents, 1 + next / conf.agents, due);
			next++;
			due = start_ns + (uint64_t)(((double)next + 0.5) * gap_ns);
		}
		/* A millisecond at a time: the next beat is due before that, or a connection is awaited. */
		wait_for_events(next < beats && idle_count > 0 && due <= now ? 0 : 1);
	}
	return late_ns;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static double percentile_ms(double p)
{
	return answered ? (double)latencies_us[(size_t)((double)(answered - 1) * p)] / 1e3 : 0;
}

static int report(
	uint64_t beats, uint64_t cpu_ns, uint64_t wall_ns, uint64_t late_ns, uint64_t late_max_ns)
{
	if (not_200 || answered < beats || late_ns > BACKLOG_MAX_MS * NSEC_PER_MSEC) {
		(void)fprintf(stderr,
			"fleet: the backend fell behind, so there are no figures: %llu of %llu "
			"answered, %llu "
			"not with 200, the last beat sent %.0f ms late\n",
			(unsigned long long)answered, (unsigned long long)beats,
			(unsigned long long)not_200, (double)late_ns / 1e6);
		return 1;
	}
	qsort(latencies_us, answered, sizeof(*latencies_us), by_size);
	(void)printf(
		"{\"agents\":%llu,\"interval_s\":%llu,\"connections\":%llu,\"per_connection\":%llu,"
		"\"connections_opened\":%llu,\"seconds\":%.3f,\"due\":%llu,\"answered\":%llu,"
		"\"beats_per_s\":%.0f,\"backend_cpu_us_per_beat\":%.1f,\"backend_share_of_core\":%."
		"4f,"
		"\"latency_ms\":{\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"p999\":%.2f,\"max\":%.2f}"
		","
		"\"sent_late_max_ms\":%.1f}\n",
		(unsigned long long)conf.agents, (unsigned long long)conf.interval_s,
		(unsigned long long)conf.connections, (unsigned long long)conf.per_connection,
		(unsigned long long)opened, (double)wall_ns / 1e9, (unsigned long long)beats,
		(unsigned long long)answered, (double)answered / ((double)wall_ns / 1e9),
		(double)cpu_ns / 1e3 / (double)answered, (double)cpu_ns / (double)wall_ns,
		percentile_ms(0.5), percentile_ms(0.9), percentile_ms(0.99), percentile_ms(0.999),
		percentile_ms(1), (double)late_max_ns / 1e6);
	return 0;
}

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {{"port", 1, NULL, 0}, {"pid", 1, NULL, 1},
		{"agents", 1, NULL, 2}, {"seconds", 1, NULL, 3}, {"interval", 1, NULL, 4},
		{"connections", 1, NULL, 5}, {"per-connection", 1, NULL, 6}, {0}};
	const struct {
		uint64_t *to, min, max;
	} rules[] = {{&conf.port, 1, 65535}, {&conf.pid, 1, 1 << 22}, {&conf.agents, 1, 200000},
		{&conf.seconds, 1, 3600}, {&conf.interval_s, 1, 3600},
		{&conf.connections, 1, CONNECTIONS_MAX}, {&conf.per_connection, 0, 1 << 30}};
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0)
		if (o >= (int)ARRAY_SIZE(rules) ||
			str_to_u64(optarg, rules[o].min, rules[o].max, rules[o].to) < 0)
			die("a wrong option, see the file's comment", EINVAL);
	if (optind < argc || !conf.port || !conf.pid)
		die("--port and --pid are needed", EINVAL);
}

int main(int argc, char **argv)
{
	uint64_t beats, start_ns, cpu_ns, wall_ns, late_ns, late_max_ns;

	read_options(argc, argv);
	beats = conf.agents * conf.seconds / conf.interval_s;
	conns = calloc(conf.connections, sizeof(*conns));
	idle = calloc(conf.connections, sizeof(*idle));
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!conns || !idle || epoll_fd < 0 || beats == 0)
		die("start", conns && idle && epoll_fd >= 0 ? EINVAL : ENOMEM);
	for (size_t i = 0; i < conf.connections; i++) {
		conns[i].fd = -1;
		idle[idle_count++] = i;
	}
	introduce();
	latencies_max = beats;
	latencies_us = calloc(beats, sizeof(*latencies_us));
	if (!latencies_us)
		die("memory for latencies", ENOMEM);
	answered = opened = 0;
	cpu_ns = backend_cpu_ns();
	start_ns = loop_now_ns();
	late_ns = run(start_ns, beats, &late_max_ns);
	wall_ns = loop_now_ns() - start_ns;
	cpu_ns = backend_cpu_ns() - cpu_ns;
	return report(beats, cpu_ns, wall_ns, late_ns, late_max_ns);
}
