/* See daemon_spec.h. */
#include "agent/daemon_spec.h"

#include <errno.h>

#include "base/def.h"

#define SPEC_BYTES_MAX (2UL << 20)

/* Replaces what t points at by a copy. */
static int copy_texts(struct arena *a, struct filter_texts *t)
{
	const char **copy = arena_alloc(a, (t->count + 1) * sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < t->count; i++) {
		copy[i] = arena_strdup(a, t->at[i]);
		if (!copy[i])
			return -ENOMEM;
	}
	t->at = copy;
	return 0;
}

static int copy_filter(struct arena *a, struct filter *f)
{
	int r = 0;

	for (size_t s = 0; r == 0 && s < FILTER_SIDES; s++) {
		struct filter_list *l = &f->sides[s];
		uint64_t *pids = arena_alloc(a, (l->pid_count + 1) * sizeof(*pids));

		if (!pids)
			return -ENOMEM;
		if (l->pid_count > 0)
			memcpy(pids, l->pids, l->pid_count * sizeof(*pids));
		l->pids = pids;
		for (size_t k = 0; r == 0 && k < FILTER_TEXTS; k++)
			r = copy_texts(a, &l->texts[k]);
	}
	return r;
}

int spec_init(const struct command *c, struct spec *ret)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(SPEC_BYTES_MAX);
	struct command copy = *c;

	if (!a)
		return -ENOMEM;
	copy.id = arena_strdup(a, c->id);
	copy.view = arena_strdup(a, c->view);
	copy.target = "";
	if (!copy.id || !copy.view || copy_filter(a, &copy.filter) < 0)
		return -ENOMEM;
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
