/*
 * See commands.h: the file of what was done. It is small and written whole at every change, before
 * the change is told to anybody: a command that was started is known after a crash, too.
 */
#include "agent/commands.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define SPEC_BYTES_MAX ((size_t)1 << 20)

static const char *const state_names[] = {"running", "done", "failed", "cancelled"};

struct commands {
	char *path;
	size_t count;
	uint64_t changes;
	struct commands_entry *entries; /* oldest first, COMMANDS_KEPT_MAX of them */
};

const char *command_state_name(enum command_state s)
{
	return state_names[s];
}

static bool parse_state(const char *name, enum command_state *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(state_names); i++) {
		if (strcmp(state_names[i], name) == 0) {
			*ret = (enum command_state)i;
			return true;
		}
	}
	return false;
}

static const char *string_of(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsString(v) ? v->valuestring : "";
}

static void set_text(struct commands_entry *e, const char *text)
{
	struct buf b = BUF_INIT(sizeof(e->text) - 1);

	(void)str_append_utf8(&b, text, strlen(text), sizeof(e->text) - 1); /* cut at the limit */
	memcpy(e->text, buf_str(&b), b.size + 1);
	buf_done(&b);
}

/* False: an entry that we did not write. */
static bool load_entry(const cJSON *o, struct commands_entry *e)
{
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(o, "spec");
	const char *id = string_of(o, "id");

	if (!*id || strlen(id) > COMMAND_ID_MAX || !parse_state(string_of(o, "state"), &e->state))
		return false;
	memcpy(e->id, id, strlen(id) + 1);
	set_text(e, string_of(o, "text"));
	e->is_reported = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "reported"));
	if (e->state == COMMAND_RUNNING && cJSON_IsObject(spec))
		e->spec = cJSON_PrintUnformatted(spec);
	return true;
}

static int load(struct commands *c, const struct buf *text)
{
	cJSON *root = cJSON_ParseWithLength(buf_str(text), text->size);
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "commands");
	const cJSON *o;
	int r = cJSON_IsArray(list) &&
				strcmp(string_of(root, "schema"), "flame-agent-commands/1") == 0
			? 0
			: -EBADMSG;

	cJSON_ArrayForEach(o, list)
	{
		if (r < 0 || c->count == COMMANDS_KEPT_MAX)
			break;
		if (load_entry(o, &c->entries[c->count]))
			c->count++;
		else
			r = -EBADMSG;
	}
	cJSON_Delete(root);
	return r;
}

int commands_open(const char *path, struct buf *why, struct commands **ret)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(FILE_BYTES_MAX);
	struct commands *c = calloc(1, sizeof(*c));
	int r = -ENOMEM;

	if (c) {
		c->path = strdup(path);
		c->entries = calloc(COMMANDS_KEPT_MAX, sizeof(*c->entries));
	}
	if (c && c->path && c->entries)
		r = file_read_own(path, &text);
	if (r == 0 && load(c, &text) < 0)
		(void)buf_printf(why, "%s is damaged: commands of old may run again", path);
	if (r < 0 && r != -ENOENT) {
		commands_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void commands_free(struct commands *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++)
		free(c->entries[i].spec);
	free(c->entries);
	free(c->path);
	free(c);
}

static void append_entry(const struct commands_entry *e, struct buf *out)
{
	(void)buf_append_str(out, "{\"id\":");
	(void)str_append_json(out, e->id);
	(void)buf_printf(out, ",\"state\":\"%s\",\"text\":", state_names[e->state]);
	(void)str_append_json(out, e->text);
}

static int save(const struct commands *c)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(FILE_BYTES_MAX);

	(void)buf_append_str(&out, "{\"schema\":\"flame-agent-commands/1\",\"commands\":[");
	for (size_t i = 0; i < c->count; i++) {
		const struct commands_entry *e = &c->entries[i];

		(void)buf_append_str(&out, i > 0 ? ",\n" : "\n");
		append_entry(e, &out);
		(void)buf_printf(&out, ",\"reported\":%s", e->is_reported ? "true" : "false");
		if (e->spec)
			(void)buf_printf(&out, ",\"spec\":%s", e->spec);
		(void)buf_append_str(&out, "}");
	}
	(void)buf_append_str(&out, "\n]}\n");
	if (buf_error(&out) < 0)
		return buf_error(&out);
	return file_write_atomic(c->path, out.data, out.size);
}

static struct commands_entry *find(const struct commands *c, const char *id)
{
	for (size_t i = 0; i < c->count; i++)
		if (strcmp(c->entries[i].id, id) == 0)
			return &c->entries[i];
	return NULL;
}

const struct commands_entry *commands_find(const struct commands *c, const char *id)
{
	return find(c, id);
}

const struct commands_entry *commands_at(const struct commands *c, size_t i)
{
	return i < c->count ? &c->entries[i] : NULL;
}

/* The oldest that does not run makes room; one that was told before one that was not. */
static int make_room(struct commands *c)
{
	size_t victim = c->count;

	if (c->count < COMMANDS_KEPT_MAX)
		return 0;
	for (size_t i = c->count; i-- > 0;)
		if (c->entries[i].state != COMMAND_RUNNING && c->entries[i].is_reported)
			victim = i;
	for (size_t i = c->count; victim == c->count && i-- > 0;)
		if (c->entries[i].state != COMMAND_RUNNING)
			victim = i;
	if (victim == c->count)
		return -ENOSPC;
	free(c->entries[victim].spec);
	c->count--;
	memmove(&c->entries[victim], &c->entries[victim + 1],
		(c->count - victim) * sizeof(*c->entries));
	return 0;
}

/* A new entry behind the others. NULL: all are running. */
static struct commands_entry *add(struct commands *c, const char *id)
{
	struct commands_entry *e;

	if (strlen(id) > COMMAND_ID_MAX || make_room(c) < 0)
		return NULL;
	e = &c->entries[c->count++];
	*e = (struct commands_entry){0};
	memcpy(e->id, id, strlen(id) + 1);
	return e;
}

int commands_set(struct commands *c, const char *id, enum command_state state, const char *text,
	const struct command *running)
{
	_cleanup_(buf_done) struct buf spec = BUF_INIT(SPEC_BYTES_MAX);
	struct commands_entry *e = find(c, id);

	if (!e)
		e = add(c, id);
	if (!e)
		return -ENOSPC;
	free(e->spec);
	e->spec = NULL;
	if (running && commands_write_one(running, &spec) == 0)
		e->spec = steal_ptr(&spec.data);
	e->state = state;
	set_text(e, text);
	e->is_reported = false;
	e->change = ++c->changes;
	return save(c);
}

void commands_tell_again(struct commands *c, const char *id)
{
	struct commands_entry *e = find(c, id);

	if (!e)
		return;
	e->is_reported = false;
	e->change = ++c->changes;
}

int commands_write_acks(const struct commands *c, struct buf *out, uint64_t *ret_change)
{
	const char *comma = "";

	(void)buf_append_str(out, "[");
	for (size_t i = 0; i < c->count; i++) {
		if (c->entries[i].is_reported)
			continue;
		(void)buf_append_str(out, comma);
		append_entry(&c->entries[i], out);
		(void)buf_append_str(out, "}");
		comma = ",";
	}
	(void)buf_append_str(out, "]");
	*ret_change = c->changes;
	return buf_error(out);
}

int commands_told(struct commands *c, uint64_t change)
{
	bool changed = false;

	for (size_t i = 0; i < c->count; i++) {
		struct commands_entry *e = &c->entries[i];

		if (e->is_reported || e->change > change)
			continue;
		e->is_reported = true;
		changed = true;
	}
	return changed ? save(c) : 0;
}
