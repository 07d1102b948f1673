/*
 * See containers.h: what is known of containers, and the process that asks, from outside. Its life:
 *	want -> (GATHER_NS) -> asking -> answered: what it left out is unknown -> (AGAIN_NS) -> asking...
 * An id is asked for once. Without memory, or when the process does not start, ids stay unknown.
 */
#include "agent/containers.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "agent/containers_internal.h"
#include "base/child.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"

/* First samples of a window's containers come together, and the window before writes what it knows. */
#define GATHER_NS (250 * NSEC_PER_MSEC)
#define AGAIN_NS  NSEC_PER_SEC
#define TEXTS_MAX (16UL << 20)

enum { CACHE_BYTES_MAX = 4 << 20, CACHE_LINES_MAX = 1024 };

enum state { FORGOTTEN, WANTED, ASKED, KNOWN, UNKNOWN };

struct entry {
	char id[CGROUP_CONTAINER_MAX + 1];
	enum state state;
	uint64_t time_s; /* when it was asked for */
	struct container container;
};

struct containers {
	struct containers_options options;
	struct arena *arena;
	struct map *index;     /* id -> number in entries */
	struct entry *entries; /* CONTAINERS_MAX */
	size_t count, wanted;
	bool is_changed; /* the cache has to be written */
	char host[256];
	struct child child;
	int out; /* of the child; -1: none runs */
	struct buf answer;
	struct loop_source *timer, *on_answer;
};

bool containers_runtime_is_good(const char *runtime, struct buf *why)
{
	if (strcmp(runtime, "auto") == 0 || strcmp(runtime, "off") == 0 || *runtime == '/')
		return true;
	(void)buf_printf(why, "'%.200s' is not auto, off or the path of a socket", runtime);
	return false;
}

static bool is_off(const struct containers *c)
{
	return strcmp(c->options.runtime, "off") == 0;
}

static uint64_t now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* the clock exists */
	return (uint64_t)now.tv_sec;
}

static struct entry *find(const struct containers *c, const char *id)
{
	uint64_t i;

	return map_get(c->index, id, strlen(id), &i) && i < c->count ? &c->entries[i] : NULL;
}

/* A new one, or NULL: there is no room. */
static struct entry *add(struct containers *c, const char *id)
{
	uint64_t *v = c->count < CONTAINERS_MAX ? map_put(c->index, id, strlen(id), NULL) : NULL;
	struct entry *e;

	if (!v)
		return NULL;
	assert(c->entries);
	*v = c->count;
	e = &c->entries[c->count++];
	memcpy(e->id, id, CGROUP_CONTAINER_MAX + 1);
	for (size_t i = 0; i < CONTAINER_FIELDS; i++)
		e->container.fields[i] = "";
	return e;
}

/* Takes what a line says of e. */
static void fill(struct containers *c, struct entry *e, const struct container_line *l)
{
	e->state = UNKNOWN;
	for (size_t i = 0; i < CONTAINER_FIELDS; i++) {
		const char *text = arena_strndup(c->arena, l->fields[i].at, l->fields[i].size);

		e->container.fields[i] = text ? text : "";
		if (text && *text)
			e->state = KNOWN;
	}
}

/* --- the cache */

static void load_line(struct containers *c, const struct container_line *l, uint64_t now)
{
	struct entry *e = find(c, l->id);
	bool was_wanted = e && e->state == WANTED;

	if (e && e->state != WANTED)
		return;
	c->wanted -= was_wanted;
	if (!e)
		e = add(c, l->id);
	if (!e)
		return;
	fill(c, e, l);
	e->time_s = l->time_s;
	if (now - l->time_s < (e->state == KNOWN ? CONTAINERS_KEPT_S : CONTAINERS_UNKNOWN_S))
		return;
	/* Too old, or from the future. */
	e->state = was_wanted ? WANTED : FORGOTTEN;
	c->wanted += was_wanted;
}

static void load(struct containers *c)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(CACHE_BYTES_MAX);
	uint64_t now = now_s();
	const char *at;

	if (!c->options.cache_file || is_off(c) || file_read_own(c->options.cache_file, &text) < 0)
		return; /* what is not kept is asked for */
	at = buf_str(&text);
	if (!str_has_prefix(at, CONTAINERS_MAGIC "\n"))
		return;
	for (at += strlen(CONTAINERS_MAGIC) + 1; *at; at += *at == '\n') {
		struct container_line l;
		size_t size = strcspn(at, "\n");

		if (container_line_read(at, size, &l))
			load_line(c, &l, now);
		at += size;
	}
}

static void save(struct containers *c)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(CACHE_BYTES_MAX);
	int r = buf_append_str(&out, CONTAINERS_MAGIC "\n");

	if (!c->options.cache_file || !c->is_changed)
		return;
	/* The newest stand last. */
	for (size_t i = c->count - MIN(c->count, (size_t)CACHE_LINES_MAX); i < c->count; i++) {
		const struct entry *e = &c->entries[i];

		if (e->state == KNOWN || e->state == UNKNOWN)
			r = container_line_write(&out, e->id, e->time_s, &e->container);
	}
	if (r == 0)
		r = file_write_atomic(c->options.cache_file, out.data, out.size);
	if (r < 0)
		log_warn("containers", "keep what is known", r, "file=%s", c->options.cache_file);
	c->is_changed = false;
}

/* --- asking */

static void ask_soon(struct containers *c, uint64_t wait_ns);

/* Lines of what was answered; every id that was asked for and is not there is unknown. */
static void take_answer(struct containers *c)
{
	for (const char *at = buf_str(&c->answer); *at; at += *at == '\n') {
		struct container_line l;
		size_t size = strcspn(at, "\n");
		struct entry *e = container_line_read(at, size, &l) ? find(c, l.id) : NULL;

		if (e && e->state == ASKED)
			fill(c, e, &l);
		at += size;
	}
	assert(c->entries);
	for (size_t i = 0; i < c->count; i++)
		if (c->entries[i].state == ASKED)
			c->entries[i].state = UNKNOWN;
	c->is_changed = true;
}

static void end_child(struct containers *c)
{
	loop_remove(c->on_answer);
	c->on_answer = NULL;
	closep(&c->out);
	c->out = -1;
	child_end(&c->child, 0);
}

/* What the pipe holds. True: that is all. */
static bool drain(struct containers *c)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(c->out, bytes, sizeof(bytes))) > 0)
		(void)buf_append(&c->answer, bytes, (size_t)n); /* what is too much makes no line */
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int on_answer(struct loop *l, uint32_t events, void *data)
{
	struct containers *c = data;

	(void)l;
	(void)events;
	if (!drain(c))
		return 0;
	end_child(c);
	take_answer(c);
	if (c->wanted > 0)
		ask_soon(c, AGAIN_NS);
	return 0;
}

/* The ids as a file to read from; -errno. */
static int write_question(struct containers *c)
{
	_cleanup_(buf_done) struct buf ids =
		BUF_INIT(CONTAINERS_ASKED_MAX * (CGROUP_CONTAINER_MAX + 1));
	_cleanup_(closep) int fd = memfd_create("ids", MFD_CLOEXEC);
	uint64_t now = now_s();
	size_t n = 0;
	int r = fd < 0 ? -errno : 0;

	for (size_t i = 0; r == 0 && i < c->count && n < CONTAINERS_ASKED_MAX; i++) {
		struct entry *e = &c->entries[i];

		if (e->state != WANTED)
			continue;
		e->state = ASKED;
		e->time_s = now;
		c->wanted--;
		n++;
		r = buf_printf(&ids, "%s\n", e->id);
	}
	if (r == 0)
		r = file_write_all(fd, buf_str(&ids), ids.size);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	return r < 0 ? r : steal_fd(&fd);
}

static int start_child(struct containers *c)
{
	char program[] = "/proc/self/exe";
	char role[] = CONTAINERS_ARG;
	char *argv[] = {program, role, (char *)c->options.runtime, c->host, NULL};
	char *envp[] = {NULL}; /* no proxy, no LD_PRELOAD, no locale */
	_cleanup_(closep) int in = write_question(c);
	int out[2];
	int r;

	if (in < 0)
		return in;
	if (pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	_cleanup_(closep) int write_end = out[1];
	c->out = out[0];
	buf_reset(&c->answer);
	/* Our end only: the process may wait for us, we never for it. */
	if (fcntl(c->out, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	r = child_start(&c->child, argv,
		&(struct child_io){.in = in, .out = write_end, .err = STDERR_FILENO, .envp = envp});
	if (r == 0)
		r = loop_add_fd(c->options.loop, c->out, EPOLLIN, on_answer, c, &c->on_answer);
	return r;
}

static int on_time(struct loop *l, uint32_t events, void *data)
{
	struct containers *c = data;
	int r;

	(void)l;
	(void)events;
	loop_remove(c->timer);
	c->timer = NULL;
	load(c); /* the window before this one ended after we began */
	if (c->wanted == 0)
		return 0;
	r = start_child(c);
	if (r < 0) {
		log_warn("containers", "start asking", r, "runtime=%s", c->options.runtime);
		end_child(c);
		take_answer(c); /* none: they are unknown */
	}
	return 0;
}

static void ask_soon(struct containers *c, uint64_t wait_ns)
{
	/* Without a timer ids stay wanted, which is as good as unknown. */
	if (!c->timer && c->out < 0)
		(void)loop_add_timer(c->options.loop, wait_ns, 0, on_time, c, &c->timer);
}

/* --- */

int containers_new(const struct containers_options *o, struct containers **ret)
{
	struct containers *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->options = *o;
	c->out = -1;
	c->child.pidfd = -1;
	buf_init(&c->answer, CONTAINERS_ANSWER_MAX);
	c->arena = arena_new(TEXTS_MAX);
	c->index = map_new(CONTAINERS_MAX);
	c->entries = calloc(CONTAINERS_MAX, sizeof(*c->entries));
	if (!c->arena || !c->index || !c->entries) {
		containers_free(c);
		return -ENOMEM;
	}
	if (gethostname(c->host, sizeof(c->host) - 1) < 0)
		c->host[0] = '\0';
	load(c);
	*ret = c;
	return 0;
}

void containers_free(struct containers *c)
{
	if (!c)
		return;
	loop_remove(c->timer);
	end_child(c);
	buf_done(&c->answer);
	arena_free(c->arena);
	map_free(c->index);
	free(c->entries);
	free(c);
}

void containers_want(struct containers *c, const char *id)
{
	struct entry *e = find(c, id);

	if (is_off(c) || !container_id_is_good(id, strlen(id)))
		return;
	if (!e)
		e = add(c, id);
	if (!e || e->state != FORGOTTEN)
		return;
	e->state = WANTED;
	c->wanted++;
	ask_soon(c, GATHER_NS);
}

void containers_settle(struct containers *c)
{
	if (c->out >= 0 && drain(c)) {
		end_child(c);
		take_answer(c);
	}
	save(c);
}

bool containers_find(const struct containers *c, const char *id, struct container *ret)
{
	const struct entry *e = find(c, id);

	if (!e || e->state != KNOWN)
		return false;
	*ret = e->container;
	return true;
}
