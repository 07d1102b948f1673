/* See power.h. */
#include "lab/power.h"

#include <errno.h>

#include "base/def.h"

static const uint64_t power_number_max = 1ULL << 53;

static void power_read(const struct json_at *root, struct power_result *p)
{
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{"entries", &p->entries},
		{"log_bytes", &p->log_bytes},
		{"marks", &p->marks},
		{"cuts_wanted", &p->cuts_wanted},
		{"cuts", &p->cuts},
		{"cuts_between", &p->cuts_between},
		{"held", &p->held},
		{"lost_pushes", &p->lost_pushes},
		{"wrong_pushes", &p->wrong_pushes},
		{"lost_requests", &p->lost_requests},
		{"lost_tokens", &p->lost_tokens},
		{"verify_faults", &p->verify_faults},
		{"failed_mounts", &p->failed_mounts},
		{"failed_starts", &p->failed_starts},
		{"failed_calls", &p->failed_calls},
	};
	struct json_at at;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		at = json_need(root, numbers[i].name);
		*numbers[i].value = json_u64(&at, 0, 0, power_number_max);
	}
	at = json_need(root, "error");
	p->error = json_text(&at, "", 0, 512);
	at = json_need(root, "first");
	p->first = json_text(&at, "", 0, 512);
}

int power_parse(struct power_result *p, const char *file, const void *data, size_t size)
{
	static const char *const schemas[] = {"flamelab-power/1", NULL};
	struct json_at root, at;
	int r;

	*p = (struct power_result){0};
	r = json_parse(&p->doc, file, data, size);
	if (r < 0)
		return r;
	root = json_root(&p->doc);
	if (!json_open_object(&root))
		return -EBADMSG;
	at = json_need(&root, "schema");
	(void)json_choice(&at, 0, schemas); /* only the failure counts */
	power_read(&root, p);
	return json_failed(&p->doc) ? -EBADMSG : 0;
}

void power_done(struct power_result *p)
{
	json_done(&p->doc);
	*p = (struct power_result){0};
}
