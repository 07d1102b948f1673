/* See daemon_spec.h. */
#include "agent/daemon_spec.h"

#include <errno.h>

#include "base/def.h"

#define SPEC_BYTES_MAX (2UL << 20)

static const char *const *copy_texts(struct arena *a, const char *const *texts, size_t count)
{
	const char **copy = arena_alloc(a, (count + 1) * sizeof(*copy));

	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = arena_strdup(a, texts[i]);
		if (!copy[i])
			return NULL;
	}
	return copy;
}

int spec_init(const struct command *c, struct spec *ret)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(SPEC_BYTES_MAX);
	struct command copy = *c;
	uint64_t *pids;

	if (!a)
		return -ENOMEM;
	pids = arena_alloc(a, (c->pid_count + 1) * sizeof(*pids));
	copy.id = arena_strdup(a, c->id);
	copy.view = arena_strdup(a, c->view);
	copy.target = "";
	copy.comms = copy_texts(a, c->comms, c->comm_count);
	copy.cgroups = copy_texts(a, c->cgroups, c->cgroup_count);
	copy.containers = copy_texts(a, c->containers, c->container_count);
	if (!pids || !copy.id || !copy.view || !copy.comms || !copy.cgroups || !copy.containers)
		return -ENOMEM;
	if (c->pid_count > 0)
		memcpy(pids, c->pids, c->pid_count * sizeof(*pids));
	copy.pids = pids;
	*ret = (struct spec){.arena = steal_ptr(&a), .command = copy};
	return 0;
}

int spec_change(const struct command *start, const struct command *change, struct spec *ret)
{
	struct command c = *change;
	int r;

	c.id = start->id;
	c.kind = COMMAND_START;
	c.view = start->view;
	c.deadline_unix_ms = start->deadline_unix_ms;
	r = spec_init(&c, ret);
	if (r == 0)
		(void)snprintf(ret->change_id, sizeof(ret->change_id), "%s", change->id); /* fits */
	return r;
}

void spec_done(struct spec *s)
{
	arena_free(s->arena);
	*s = (struct spec){0};
}

void spec_move(struct spec *to, struct spec *from)
{
	spec_done(to);
	*to = *from;
	*from = (struct spec){0};
}
