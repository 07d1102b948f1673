/* See processes.h. */
#include "agent/processes.h"

#include <errno.h>
#include <fcntl.h>

#include "agent/procfs.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"

#define TEXT_BYTES_MAX (16UL << 20)
#define POOLED         "other"

enum { CGROUPS_MAX = 16384, CONTAINER_SHOWN = 12, POOL_PART = 100 };

struct identity {
	uint64_t start_ns;
	uint32_t tgid, exec_id;
};

struct group { /* a cgroup that was seen */
	const char *path;
	const char *container; /* the whole id, "" */
	const char *shown;     /* its beginning */
};

struct entry {
	uint32_t group;   /* number in groups */
	uint32_t service; /* number in services */
	const char *comm, *exe;
	bool is_kernel;
};

struct service {
	const char *name;
	uint64_t weight_ns;
	bool is_by_name;
	bool is_old; /* a process of it was there before the window */
};

struct processes {
	struct processes_options options;
	struct cgroups *cgroups;
	struct arena *arena;
	struct map *index;         /* identity -> number in entries */
	struct map *group_index;   /* cgroup id, or path -> number in groups */
	struct map *service_index; /* name -> number in services */
	struct entry *entries;     /* options.max */
	struct group *groups;      /* CGROUPS_MAX; 0 is the unknown one */
	struct service *services;  /* options.max; 0 is the pool */
	size_t count, group_count, service_count;
};

int processes_new(const struct processes_options *o, struct processes **ret)
{
	struct processes *p = calloc(1, sizeof(*p));
	int r = p ? 0 : -ENOMEM;

	if (r == 0) {
		p->options = *o;
		p->arena = arena_new(TEXT_BYTES_MAX);
		p->index = map_new(o->max);
		p->group_index = map_new(CGROUPS_MAX);
		p->service_index = map_new(o->max);
		p->entries = calloc(o->max, sizeof(*p->entries));
		p->groups = calloc(CGROUPS_MAX, sizeof(*p->groups));
		p->services = calloc(o->max + 1, sizeof(*p->services));
		r = cgroups_new(&p->cgroups);
	}
	if (r < 0 || !p->arena || !p->index || !p->group_index || !p->service_index ||
		!p->entries || !p->groups || !p->services) {
		processes_free(p);
		return -ENOMEM;
	}
	p->groups[p->group_count++] = (struct group){"", "", ""};
	p->services[p->service_count++] = (struct service){.name = POOLED};
	*ret = p;
	return 0;
}

void processes_free(struct processes *p)
{
	if (!p)
		return;
	cgroups_free(p->cgroups);
	arena_free(p->arena);
	map_free(p->index);
	map_free(p->group_index);
	map_free(p->service_index);
	free(p->entries);
	free(p->groups);
	free(p->services);
	free(p);
}

static struct identity identity_of(const struct stack_key *key)
{
	return (struct identity){
		.start_ns = key->start_ns, .tgid = key->tgid, .exec_id = key->exec_id};
}

static uint32_t add_group(struct processes *p, const char *path)
{
	char container[CGROUP_CONTAINER_MAX + 1] = "";
	struct group g;

	(void)cgroup_container(path, container); /* none leaves "" */
	g.path = arena_strdup(p->arena, path);
	g.container = arena_strdup(p->arena, container);
	g.shown = arena_strndup(p->arena, container, CONTAINER_SHOWN);
	if (!g.path || !g.container || !g.shown)
		return 0;
	p->groups[p->group_count] = g;
	return (uint32_t)p->group_count++;
}

/* The number of what has that key. path NULL: it is asked of the kernel, by the id. */
static uint32_t number_group(
	struct processes *p, const void *key, size_t size, const char *path, uint64_t id)
{
	char named[CGROUP_PATH_MAX];
	bool is_new;
	uint64_t *v =
		p->group_count < CGROUPS_MAX ? map_put(p->group_index, key, size, &is_new) : NULL;

	if (!v)
		return 0;
	if (is_new && !path && cgroups_path(p->cgroups, id, named) == 0)
		path = named;
	if (is_new)
		*v = path ? add_group(p, path) : 0;
	return (uint32_t)*v;
}

/* Of a process on a host with version 1 controllers. False: it is gone, or all is "/". */
static bool read_cgroup(const struct stack_key *key, char ret[CGROUP_PATH_MAX])
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(64 << 10);
	_cleanup_(closep) int process = procfs_open(key->tgid, key->start_ns);
	_cleanup_(closep) int fd =
		process < 0 ? -1 : openat(process, "cgroup", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && file_read_fd(fd, &text) == 0 && cgroup_of_process(buf_str(&text), ret);
}

static uint32_t group_of(struct processes *p, const struct stack_record *r)
{
	uint64_t id = r->cgroup_id;
	char path[CGROUP_PATH_MAX];

	if (cgroups_has_v1(p->cgroups) && read_cgroup(&r->key, path))
		return number_group(p, path, strlen(path), path, 0);
	return number_group(p, &id, sizeof(id), NULL, id);
}

/*
 * The file name of its executable; "" when the process is gone, a kernel thread, or its executable a memfd, whose name
 * is any text.
 */
static void read_exe(uint32_t tgid, char *ret, size_t size)
{
	static const char deleted[] = " (deleted)";
	static const char memfd[] = "/memfd:";
	char link[32];
	char path[CGROUP_PATH_MAX];
	const char *name;
	ssize_t n;

	*ret = '\0';
	(void)snprintf(link, sizeof(link), "/proc/%u/exe", tgid);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return;
	path[n] = '\0';
	if (strncmp(path, memfd, strlen(memfd)) == 0)
		return;
	if (str_has_suffix(path, deleted))
		path[(size_t)n - strlen(deleted)] = '\0';
	name = strrchr(path, '/');
	(void)snprintf(ret, size, "%.255s", name ? name + 1 : path); /* cut is a name, too */
}

/*
 * Whether the process still goes by that name. A sample of a shell that was about to exec belongs to the
 * shell, but its executable may be read when it has become the other program.
 */
static bool is_still(uint32_t tgid, const char *comm)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%u/comm", tgid);
	return file_read(path, &b) == 0 && b.size > 0 && b.size - 1 == strlen(comm) &&
	       memcmp(b.data, comm, b.size - 1) == 0;
}

/* Number of the service of that name. False: no memory. */
static bool number_service(
	struct processes *p, const char *name, enum service_source source, uint32_t *ret)
{
	bool is_new;
	uint64_t *v = map_put(p->service_index, name, strlen(name), &is_new);

	if (!v)
		return false;
	if (is_new) {
		const char *copy = arena_strdup(p->arena, name);

		*v = p->service_count;
		p->services[p->service_count++] =
			(struct service){.name = copy ? copy : POOLED, .is_by_name = true};
	}
	p->services[*v].is_by_name &= source == SERVICE_OF_NAME;
	*ret = (uint32_t)*v;
	return true;
}

void processes_see(struct processes *p, const struct stack_record *r)
{
	struct identity id = identity_of(&r->key);
	char exe[SERVICE_NAME_MAX] = "";
	char comm[SAMPLE_COMM_SIZE + 1];
	uint64_t *v;
	struct entry e = {.is_kernel = r->flags & STACK_RECORD_KTHREAD};
	bool is_new;

	if (p->count == p->options.max)
		return;
	v = map_put(p->index, &id, sizeof(id), &is_new);
	if (!v || !is_new)
		return;
	(void)snprintf(comm, sizeof(comm), "%.*s", (int)sizeof(r->process_comm), r->process_comm);
	e.group = group_of(p, r);
	if (!e.is_kernel)
		read_exe(r->key.tgid, exe, sizeof(exe));
	if (*exe && !is_still(r->key.tgid, comm))
		*exe = '\0';
	e.comm = arena_strdup(p->arena, comm);
	e.exe = *exe ? arena_strdup(p->arena, exe) : "";
	if (p->options.containers && *p->groups[e.group].container)
		containers_want(p->options.containers, p->groups[e.group].container);
	*v = p->count;
	p->entries[p->count++] = e;
}

static bool container_of(const struct processes *p, const struct group *g, struct container *ret)
{
	return p->options.containers && *g->container &&
	       containers_find(p->options.containers, g->container, ret);
}

void processes_settle(struct processes *p)
{
	if (p->options.containers)
		containers_settle(p->options.containers);
	for (size_t i = 0; i < p->count; i++) {
		struct entry *e = &p->entries[i];
		const struct group *g = &p->groups[e->group];
		struct container c = {.fields = {[CONTAINER_WORKLOAD] = ""}};
		char name[SERVICE_NAME_MAX];
		enum service_source source;

		(void)container_of(p, g, &c); /* none has no workload */
		source = service_name(
			&(struct service_facts){
				.fixed = p->options.service,
				.rules = p->options.rules,
				.rule_count = p->options.rule_count,
				.comm = e->comm ? e->comm : "",
				.exe = e->exe ? e->exe : "",
				.cgroup = g->path,
				.workload = c.fields[CONTAINER_WORKLOAD],
				.is_kernel = e->is_kernel,
			},
			name);
		if (!number_service(p, name, source, &e->service))
			e->service = 0;
	}
}

static void add_label(struct process *to, const char *key, const char *text)
{
	if (!*text)
		return;
	to->labels[to->label_count].key = key;
	to->labels[to->label_count++].text = text;
}

bool processes_find(const struct processes *p, const struct stack_key *key, struct process *ret)
{
	struct identity id = identity_of(key);
	const struct group *g;
	struct container c;
	uint64_t i;

	if (!map_get(p->index, &id, sizeof(id), &i) || i >= p->count)
		return false;
	g = &p->groups[p->entries[i].group];
	ret->label_count = 0;
	add_label(ret, "cgroup", g->path);
	add_label(ret, "container", g->shown);
	for (size_t f = 0; f < CONTAINER_FIELDS && container_of(p, g, &c); f++)
		add_label(ret, container_field_label((enum container_field)f), c.fields[f]);
	add_label(ret, "service", p->services[p->entries[i].service].name);
	return true;
}

void processes_pool(struct processes *p, const struct collect_stack *counted, size_t count,
	uint64_t start_boot_ns, uint64_t window_ns)
{
	for (size_t i = 0; i < count; i++) {
		struct identity id = identity_of(&counted[i].key);
		uint64_t n;
		struct service *s;

		if (!map_get(p->index, &id, sizeof(id), &n) || n >= p->count)
			continue;
		s = &p->services[p->entries[n].service];
		s->weight_ns += counted[i].value.weight_ns;
		s->is_old |= counted[i].key.start_ns < start_boot_ns;
	}
	for (size_t i = 0; i < p->service_count; i++) {
		struct service *s = &p->services[i];

		if (s->is_by_name && !s->is_old && s->weight_ns < window_ns / POOL_PART)
			s->name = POOLED;
	}
}
