/*
 * What a recording is to be: a copy of its command that lives as long as the recording, or as the
 * change that brought it.
 */
#ifndef AGENT_DAEMON_SPEC_H
#define AGENT_DAEMON_SPEC_H

#include <stdbool.h>

#include "agent/commands.h"
#include "base/arena.h"

struct spec {
	struct arena *arena; /* NULL: there is none */
	struct command command;
	char change_id[COMMAND_ID_MAX + 1]; /* of the change it came by, "" for the first one */
};

/* A copy of c. 0 or -ENOMEM. */
int spec_init(const struct command *c, struct spec *ret);
/* What start becomes by change: start's identity and view, the change's rest. 0 or -ENOMEM. */
int spec_change(const struct command *start, const struct command *change, struct spec *ret);
void spec_done(struct spec *s); /* leaves an empty one */
/* Empties *from into *to, which is emptied first. */
void spec_move(struct spec *to, struct spec *from);
static inline bool spec_is_set(const struct spec *s)
{
	return s->arena != NULL;
}

#endif
