/* build/lab/run.json: what the last run was asked for. */
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"
#include "lab/command.h"
#include "lab/json.h"

int command_request_save(const struct command_request *q, const char *out_dir)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(65536);
	char path[800];
	int r;

	(void)buf_printf(&b,
		"{ \"schema\": \"flamelab-run/1\", \"full\": %s, \"repeat\": %llu, \"runs\": %llu, "
		"\"mode\": %d, \"names\": [",
		q->full ? "true" : "false", (unsigned long long)q->repeat,
		(unsigned long long)q->runs, q->mode);
	for (size_t i = 0; i < q->name_count; i++) {
		(void)buf_append_str(&b, i ? ", " : " ");
		(void)str_append_json(&b, q->names[i]);
	}
	(void)buf_append_str(&b, " ] }\n");
	if (buf_error(&b))
		return buf_error(&b);
	r = file_mkdir_parents(out_dir);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/run.json", out_dir);
	return file_write_atomic(path, b.data, b.size);
}

int command_request_load(struct command_request *q, const char *out_dir, struct json *j)
{
	struct json_at root, at, item;
	char path[800];
	int r;

	(void)snprintf(path, sizeof(path), "%s/run.json", out_dir);
	r = json_load(j, path);
	if (r < 0)
		return r;
	root = json_root(j);
	at = json_need(&root, "full");
	q->full = json_bool(&at, false);
	at = json_need(&root, "repeat");
	q->repeat = json_u64(&at, 0, 0, 100);
	at = json_need(&root, "runs");
	q->runs = json_u64(&at, 0, 0, 128);
	at = json_need(&root, "mode");
	q->mode = (int)json_u64(&at, 0, 0, 3);
	at = json_need(&root, "names");
	q->name_count = json_array(&at, 0, ARRAY_SIZE(q->names));
	for (size_t i = 0; i < q->name_count; i++) {
		item = json_item(&at, i);
		q->names[i] = json_text(&item, "", 1, 64);
	}
	return json_failed(j) ? -EBADMSG : 0;
}
