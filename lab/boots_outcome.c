/* What a boot came to, in words and as outcome.json. */
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "base/str.h"
#include "lab/boots.h"
#include "lab/json.h"

static const char *const boots_ends[] = {"ok", "crashed", "hung", "no_start", "no_space", NULL};

const char *boots_end_name(enum vm_end e)
{
	return (unsigned int)e <= VM_NO_SPACE ? boots_ends[e] : "?";
}

const char *boots_failure(const struct boots_item *i, char text[400])
{
	if (!i->ran)
		(void)snprintf(text, 400, "VM did not run");
	else if (i->error < 0)
		(void)snprintf(text, 400, "VM could not be run: %s%s%.200s", strerror(-i->error),
			i->outcome.reason[0] ? ": " : "", i->outcome.reason);
	else if (i->outcome.end != VM_OK)
		(void)snprintf(text, 400, "VM %s: %.200s%s%.120s", boots_end_name(i->outcome.end),
			i->outcome.reason, i->outcome.console[0] ? ", console in " : "",
			i->outcome.console);
	else
		return NULL;
	return text;
}

int boots_save(const struct boots_item *i)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(16384);
	char path[800];

	(void)buf_printf(&b,
		"{\n\t\"schema\": \"flamelab-outcome/1\",\n\t\"error\": %d,\n\t\"end\": ",
		i->error);
	(void)str_append_json(&b, boots_end_name(i->outcome.end));
	(void)buf_append_str(&b, ",\n\t\"reason\": ");
	(void)str_append_json(&b, i->outcome.reason);
	(void)buf_append_str(&b, ",\n\t\"console\": ");
	(void)str_append_json(&b, i->outcome.console);
	(void)buf_append_str(&b, ",\n\t\"accel\": ");
	(void)str_append_json(&b, i->outcome.accel);
	(void)buf_printf(&b,
		",\n\t\"guest_ns\": %llu,\n\t\"host_ns\": %llu,\n\t\"retries\": %u\n}\n",
		(unsigned long long)i->outcome.guest_ns, (unsigned long long)i->outcome.host_ns,
		i->retries);
	if (buf_error(&b))
		return buf_error(&b);
	(void)snprintf(path, sizeof(path), "%s/outcome.json", i->dir);
	return file_write_atomic(path, b.data, b.size);
}

int boots_load(struct boots_item *i)
{
	_cleanup_(json_done) struct json j = {0};
	struct json_at root, at;
	char path[800];
	int r;

	(void)snprintf(path, sizeof(path), "%s/outcome.json", i->dir);
	r = json_load(&j, path);
	if (r < 0)
		return r;
	root = json_root(&j);
	at = json_need(&root, "error");
	i->error = (int)json_i64(&at, 0, -4096, 0);
	at = json_need(&root, "end");
	i->outcome.end = (enum vm_end)json_choice(&at, 0, boots_ends);
	at = json_need(&root, "guest_ns");
	i->outcome.guest_ns = json_u64(&at, 0, 0, 1ULL << 53);
	at = json_need(&root, "host_ns");
	i->outcome.host_ns = json_u64(&at, 0, 0, 1ULL << 53);
	at = json_need(&root, "retries");
	i->retries = (unsigned int)json_u64(&at, 0, 0, 100);
	at = json_need(&root, "reason");
	(void)snprintf(i->outcome.reason, sizeof(i->outcome.reason), "%s",
		json_text(&at, "", 0, sizeof(i->outcome.reason)));
	at = json_need(&root, "console");
	(void)snprintf(i->outcome.console, sizeof(i->outcome.console), "%s",
		json_text(&at, "", 0, sizeof(i->outcome.console)));
	at = json_need(&root, "accel");
	(void)snprintf(i->outcome.accel, sizeof(i->outcome.accel), "%s",
		json_text(&at, "", 0, sizeof(i->outcome.accel)));
	if (json_failed(&j))
		return -EBADMSG;
	i->ran = true;
	return 0;
}
