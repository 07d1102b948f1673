/* links: agent */
/* commands: any bytes as a heartbeat's answer; what is read is within its bounds and survives a round trip. */
#include "agent/commands.h"

#include <assert.h>

#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_list(const struct filter_list *l, const struct filter_texts_name *names)
{
	assert(l->pid_count <= COMMANDS_FILTER_MAX);
	for (size_t i = 0; i < l->pid_count; i++)
		assert(l->pids[i] >= 1 && l->pids[i] <= 4194304);
	for (size_t k = 0; k < FILTER_TEXTS; k++) {
		const struct filter_texts *t = &l->texts[k];

		assert(t->count <= COMMANDS_FILTER_MAX);
		for (size_t i = 0; i < t->count; i++)
			assert(strlen(t->at[i]) >= 1 && strlen(t->at[i]) <= names[k].size_max);
	}
}

static void check(const struct command *c, struct arena *a)
{
	_cleanup_(buf_done) struct buf once = BUF_INIT(4 << 20);
	_cleanup_(buf_done) struct buf twice = BUF_INIT(4 << 20);
	struct command again;
	const char *why;

	assert(strlen(c->id) >= 1 && strlen(c->id) <= COMMAND_ID_MAX && !strchr(c->id, '/'));
	if (c->problem)
		return;
	assert(c->duration_ns <= COMMANDS_DURATION_MAX_S * NSEC_PER_SEC);
	assert(c->frequency_hz <= 10000);
	assert((c->kind == COMMAND_START) == !*c->target);
	for (size_t s = 0; s < FILTER_SIDES; s++)
		check_list(&c->filter.sides[s], filter_texts_names[s]);
	if (commands_write_one(c, &once) < 0)
		return;
	if (commands_read_one(once.data, once.size, a, &why, &again) < 0)
		return; /* the arena is full */
	assert(commands_write_one(&again, &twice) == 0 || buf_error(&twice) < 0);
	/* Malformed UTF-8 is repaired on the first way out, so only its form may have changed. */
	assert(again.kind == c->kind);
	for (size_t s = 0; s < FILTER_SIDES; s++) {
		assert(again.filter.sides[s].pid_count == c->filter.sides[s].pid_count);
		for (size_t k = 0; k < FILTER_TEXTS; k++)
			assert(again.filter.sides[s].texts[k].count ==
				c->filter.sides[s].texts[k].count);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(8 << 20);
	struct commands_reply r;
	const char *why = NULL;

	assert(a);
	if (commands_read_reply(data, size, a, &why, &r) < 0) {
		assert(why);
		return 0;
	}
	assert(r.count <= COMMANDS_PER_REPLY_MAX);
	for (size_t i = 0; i < r.count; i++)
		check(&r.commands[i], a);
	return 0;
}
