/*
 * Processes: read once when a program first meets them, again when a pc is in no mapping. A reading
 * that helped may be repeated soon (a program that loads one library after another), one that did
 * not help ever more rarely; both by what a reading costs, so that a process with 100,000 mappings
 * cannot keep the agent busy.
 */
#include <errno.h>
#include <signal.h>

#include "agent/process_maps.h"
#include "agent/procfs.h"
#include "agent/remapped_text.h"
#include "agent/tables_internal.h"
#include "base/def.h"
#include "base/loop.h"

enum {
	TABLES_COST_FACTOR = 8, /* readings of one process take at most a ninth of a CPU */
	TABLES_CHECKS = 32,     /* start times compared in one tick */
};

#define TABLES_BACKOFF_MIN_NS (10 * NSEC_PER_MSEC)
#define TABLES_BACKOFF_MAX_NS NSEC_PER_SEC

static uint32_t *tables_process_bucket(struct tables *t, uint32_t tgid)
{
	return &t->process_buckets[tgid % TABLES_BUCKETS];
}

int tables_process_init(struct tables *t)
{
	t->processes = calloc(TABLE_PROCESSES_MAX, sizeof(*t->processes));
	t->lists = calloc(TABLE_PROCESSES_MAX, sizeof(*t->lists));
	return t->processes && t->lists ? 0 : -ENOMEM;
}

void tables_process_done(struct tables *t)
{
	for (size_t i = 0; t->lists && i < TABLE_PROCESSES_MAX; i++)
		free(t->lists[i].files);
	free(t->processes);
	free(t->lists);
}

static void tables_process_forget(struct tables *t, struct tables_process *p)
{
	uint32_t slot = (uint32_t)(p - t->processes) + 1;
	uint32_t *at = tables_process_bucket(t, p->key.tgid);

	while (*at != slot)
		at = &t->processes[*at - 1].next;
	*at = p->next;
	tables_hide_process(t, p);
	tables_list_release(t, p->list, true);
	*p = (struct tables_process){0};
	t->process_count--;
	t->stats.processes_gone++;
}

static bool tables_process_is_dead(const struct tables_process *p)
{
	return p->is_gone || (kill((pid_t)p->key.tgid, 0) < 0 && errno == ESRCH);
}

/* The dead go; if there are none, the one that was met first. */
static void tables_process_make_room(struct tables *t)
{
	struct tables_process *first = NULL;

	for (size_t i = 0; i < TABLE_PROCESSES_MAX; i++) {
		struct tables_process *p = &t->processes[i];

		if (p->is_used && tables_process_is_dead(p))
			tables_process_forget(t, p);
		else if (p->is_used && (!first || p->sequence < first->sequence))
			first = p;
	}
	if (t->process_count == TABLE_PROCESSES_MAX && first)
		tables_process_forget(t, first);
}

static struct tables_process *tables_process_find(struct tables *t, const struct process_key *key)
{
	uint32_t at = *tables_process_bucket(t, key->tgid);

	while (at != 0 && memcmp(&t->processes[at - 1].key, key, sizeof(*key)) != 0)
		at = t->processes[at - 1].next;
	return at == 0 ? NULL : &t->processes[at - 1];
}

/*
 * Of one PID there is one process with one image: older ones go. True if key is itself older, by
 * a record that waited. What only the file of the recording before says is older than anything.
 */
static bool tables_process_is_outdated(struct tables *t, const struct process_key *key)
{
	uint32_t at = *tables_process_bucket(t, key->tgid);

	while (at != 0) {
		struct tables_process *p = &t->processes[at - 1];

		at = p->next;
		if (p->key.tgid != key->tgid || p->is_gone)
			continue;
		if (!p->is_warm &&
			(p->key.start_ns > key->start_ns || (p->key.start_ns == key->start_ns &&
								    p->key.exec_id > key->exec_id)))
			return true;
		tables_process_forget(t, p);
	}
	return false;
}

static struct tables_process *tables_process_add(struct tables *t, const struct process_key *key)
{
	bool is_outdated = tables_process_is_outdated(t, key);
	size_t i = 0;

	if (t->process_count == TABLE_PROCESSES_MAX)
		tables_process_make_room(t);
	while (i < TABLE_PROCESSES_MAX && t->processes[i].is_used)
		i++;
	if (i == TABLE_PROCESSES_MAX)
		return NULL;
	struct tables_process *p = &t->processes[i];
	uint32_t *bucket = tables_process_bucket(t, key->tgid);

	*p = (struct tables_process){
		.key = *key,
		.is_used = true,
		.is_gone = is_outdated,
		.sequence = ++t->process_sequence,
		.next = *bucket,
	};
	*bucket = (uint32_t)i + 1;
	t->process_count++;
	t->stats.processes++;
	return p;
}

static struct process_maps_ask tables_process_ask(
	const struct tables *t, const struct process_key *key, uint64_t seen_ns)
{
	return (struct process_maps_ask){.sideband = t->maps.sideband,
		.tgid = key->tgid,
		.start_ns = key->start_ns,
		.seen_ns = seen_ns};
}

/* Replaces its list by what it has mapped now, or had last; keeps the old one if that is not known. */
static int tables_process_load(struct tables *t, struct tables_process *p)
{
	struct process_maps_ask ask = tables_process_ask(t, &p->key, p->seen_ns);
	_cleanup_(maps_done) struct maps m;
	_cleanup_(closep) int fd = -1;
	uint32_t old = p->list;
	bool is_past = false;

	maps_init(&m);
	ask.is_over = p->is_gone;
	p->read_ns = loop_now_ns();
	p->is_tried = true;
	int r = process_maps_read(&ask, &m, &fd, &is_past);
	if (r < 0)
		return r;
	p->is_past = is_past;
	p->is_gone = is_past || p->is_gone;
	if (!is_past)
		remapped_text_find(t->helper, fd, &m);
	uint32_t list = tables_list_get(t, fd, &m);

	/* Making one may have taken the old one's slab. */
	old = p->list == 0 ? 0 : old;
	p->list = list;
	r = tables_show_process(t, p);
	if (r == -E2BIG || r == -ENOMEM)
		r = 0; /* it goes on to be missed; the next tick may make room */
	tables_list_release(t, old, true);
	return list == 0 ? -ENOSPC : r;
}

struct tables_process *tables_process_get(
	struct tables *t, const struct process_key *key, uint64_t seen_ns)
{
	struct tables_process *p = tables_process_find(t, key);
	int r = 0;

	if (!p)
		p = tables_process_add(t, key);
	if (!p)
		return NULL;
	p->seen_ns = MAX(p->seen_ns, seen_ns);
	if (p->is_gone && p->is_tried)
		r = p->is_past ? 0 : -ESRCH;
	else if (p->list == 0)
		r = tables_process_load(t, p);
	if (p->is_past)
		p->final_until_ns = UINT64_MAX;
	if (r == -ESRCH) {
		/* Its stacks are walked by what is known, without waiting for more. */
		p->is_gone = true;
		p->final_until_ns = UINT64_MAX;
	} else if (r < 0) {
		/* It may have been in the middle of its exec. */
		p->backoff_ns = MAX(2 * p->backoff_ns, TABLES_BACKOFF_MIN_NS);
		p->backoff_ns = MIN(p->backoff_ns, TABLES_BACKOFF_MAX_NS);
		p->final_until_ns = loop_now_ns() + p->backoff_ns;
	}
	if (r < 0 || p->generation == 0)
		(void)tables_show_process(t, p); /* or it goes on to be missed */
	return p;
}

bool tables_process_reread(struct tables *t, struct tables_process *p, uint64_t pc)
{
	struct process_maps_ask ask = tables_process_ask(t, &p->key, p->seen_ns);
	uint64_t start_ns = loop_now_ns();

	if (p->is_gone)
		return true;
	/* Events may say that there is more before the time has come; what a reading costs holds. */
	if (start_ns < p->final_until_ns &&
		(start_ns < p->read_ns + TABLES_COST_FACTOR * p->cost_ns ||
			!process_maps_is_outdated(&ask, p->read_ns)))
		return true;
	uint32_t old = p->list;
	int r = tables_process_load(t, p);
	uint64_t now_ns = loop_now_ns();
	uint64_t wait_ns = TABLES_COST_FACTOR * (now_ns - start_ns);

	p->cost_ns = now_ns - start_ns;

	/* One that has other mappings now is still loading. */
	if (r == 0 && (p->list != old || tables_list_holds(t, p->list, pc))) {
		p->backoff_ns = 0;
	} else {
		p->backoff_ns = MAX(2 * p->backoff_ns, TABLES_BACKOFF_MIN_NS);
		p->backoff_ns = MIN(p->backoff_ns, TABLES_BACKOFF_MAX_NS);
		wait_ns = MAX(wait_ns, p->backoff_ns);
	}
	p->final_until_ns = p->is_gone ? UINT64_MAX : now_ns + wait_ns;
	(void)tables_show_process(t, p); /* or it goes on to be missed */
	return true;
}

void tables_process_reopen(struct tables *t, const struct table_miss *miss, struct tables_file *f)
{
	struct process_maps_ask ask = tables_process_ask(t, &miss->process, miss->seen_ns);
	_cleanup_(maps_done) struct maps m;
	_cleanup_(closep) int fd = -1;
	bool is_past = false;

	maps_init(&m);
	if (process_maps_read(&ask, &m, &fd, &is_past) < 0)
		return;
	if (!is_past)
		remapped_text_find(t->helper, fd, &m);
	const struct maps_region *r = maps_find(&m, miss->pc);
	if (r && r->inode == f->key.inode && r->kind == MAPS_FILE)
		(void)tables_file_get(t, fd, &m, r); /* opens f, or finds that it is another now */
}

void tables_process_take_back(struct tables *t, uint32_t slab)
{
	for (size_t i = 0; i < TABLE_PROCESSES_MAX; i++) {
		struct tables_process *p = &t->processes[i];

		if (p->list == 0 || t->lists[p->list - 1].ref >> TABLE_SLAB_SHIFT != slab)
			continue;
		tables_hide_process(t, p);
		tables_list_release(t, p->list, false);
		p->list = 0;
	}
}

void tables_process_tick(struct tables *t)
{
	for (size_t i = 0; i < TABLE_PROCESSES_MAX; i++)
		if (t->processes[i].is_used && tables_process_is_dead(&t->processes[i]))
			tables_process_forget(t, &t->processes[i]);
	/* A PID that was used again looks alive; the start time tells. */
	size_t checks = 0;

	for (size_t i = 0; checks < TABLES_CHECKS && i < TABLE_PROCESSES_MAX; i++) {
		t->checked = (t->checked + 1) % TABLE_PROCESSES_MAX;
		struct tables_process *p = &t->processes[t->checked];

		if (!p->is_used)
			continue;
		checks++;
		int fd = procfs_open(p->key.tgid, p->key.start_ns);

		if (fd == -ESRCH)
			tables_process_forget(t, p);
		closep(&fd);
	}
}
