/* See policy.h. */
#include "lab/policy.h"

#include <errno.h>

#include "base/buf.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"
#include "lab/judge.h"

static const char *const policy_platforms[] = {"exact", "fast", "host", "any", NULL};

static enum gate_kind policy_read_gate(const struct json_at *parent)
{
	struct json_at at = json_need(parent, "gate");
	const char *text = json_text(&at, "", 1, 64);
	enum gate_kind k = GATE_SHARE;

	if (!json_failed(at.doc) && !gate_kind_parse(text, &k))
		json_fail(&at, "\"%s\" is not a gate", text);
	return k;
}

static const char *policy_text(const struct json_at *parent, const char *name, size_t min)
{
	struct json_at at = json_need(parent, name);

	return json_text(&at, "", min, POLICY_KEY_MAX - 1);
}

/* YYYY-MM-DD, so that dates compare as text. */
static bool policy_is_date(const char *s)
{
	for (size_t i = 0; i < 10; i++)
		if (i == 4 || i == 7 ? s[i] != '-' : s[i] < '0' || s[i] > '9')
			return false;
	return s[10] == 0;
}

static void policy_read_excuse(const struct json_at *at, struct policy_excuse *e)
{
	static const char *const names[] = {
		"gate", "scenario", "platform", "reason", "expiry", NULL};
	struct json_at field;

	if (!json_object(at, names))
		return;
	e->gate = policy_read_gate(at);
	e->scenario = policy_text(at, "scenario", 1);
	field = json_need(at, "platform");
	e->platform = policy_platforms[json_choice(&field, 0, policy_platforms)];
	e->reason = policy_text(at, "reason", 10);
	e->expiry = policy_text(at, "expiry", 1);
	field = json_field(at, "expiry");
	if (!json_failed(at->doc) && !policy_is_date(e->expiry))
		json_fail(&field, "\"%s\" is not YYYY-MM-DD", e->expiry);
}

static int policy_finish_unmeasured(struct policy *p)
{
	static const char *const names[] = {"schema", "gates", NULL};
	static const char *const schemas[] = {"flamelab-unmeasured/1", NULL};
	struct json_at root = json_root(&p->unmeasured), at, item;

	if (!json_object(&root, names))
		return -EBADMSG;
	at = json_need(&root, "schema");
	(void)json_choice(&at, 0, schemas); /* only the failure counts */
	at = json_need(&root, "gates");
	p->excuse_count = json_array(&at, 0, POLICY_EXCUSES_MAX);
	for (size_t i = 0; i < p->excuse_count; i++) {
		item = json_item(&at, i);
		policy_read_excuse(&item, &p->excuses[i]);
	}
	return json_failed(&p->unmeasured) ? -EBADMSG : 0;
}

static int policy_finish_baselines(struct policy *p)
{
	static const char *const names[] = {"schema", "baselines", NULL};
	static const char *const fields[] = {"gate", "scenario", "key", "value", "why", NULL};
	static const char *const schemas[] = {"flamelab-baselines/1", NULL};
	struct json_at root = json_root(&p->baselines), at, item, value;

	if (!json_object(&root, names))
		return -EBADMSG;
	at = json_need(&root, "schema");
	(void)json_choice(&at, 0, schemas); /* only the failure counts */
	at = json_need(&root, "baselines");
	p->item_count = json_array(&at, 0, POLICY_BASELINES_MAX);
	for (size_t i = 0; i < p->item_count; i++) {
		struct policy_baseline *b = &p->items[i];

		item = json_item(&at, i);
		if (!json_object(&item, fields))
			return -EBADMSG;
		b->gate = policy_read_gate(&item);
		b->scenario = policy_text(&item, "scenario", 1);
		b->key = policy_text(&item, "key", 1);
		b->why = policy_text(&item, "why", 10);
		value = json_need(&item, "value");
		b->value = json_f64(&value, 0, 0, 1e15);
	}
	return json_failed(&p->baselines) ? -EBADMSG : 0;
}

int policy_parse_unmeasured(struct policy *p, const void *data, size_t size)
{
	int r = json_parse(&p->unmeasured, "unmeasured.json", data, size);

	return r < 0 ? r : policy_finish_unmeasured(p);
}

int policy_parse_baselines(struct policy *p, const void *data, size_t size)
{
	int r = json_parse(&p->baselines, "baselines.json", data, size);

	return r < 0 ? r : policy_finish_baselines(p);
}

int policy_load(struct policy *p, const char *dir, const char **message)
{
	char path[1024];
	int r;

	*p = (struct policy){0};
	(void)snprintf(path, sizeof(path), "%s/unmeasured.json", dir);
	r = json_load(&p->unmeasured, path);
	if (r == 0)
		r = policy_finish_unmeasured(p);
	if (r < 0) {
		*message = p->unmeasured.message;
		return r;
	}
	(void)snprintf(path, sizeof(path), "%s/baselines.json", dir);
	r = json_load(&p->baselines, path);
	if (r == 0)
		r = policy_finish_baselines(p);
	if (r < 0)
		*message = p->baselines.message;
	return r;
}

void policy_done(struct policy *p)
{
	json_done(&p->unmeasured);
	json_done(&p->baselines);
}

bool policy_covers(const struct policy_excuse *e, const char *scenario, enum vm_mode platform)
{
	return (strcmp(e->scenario, "*") == 0 || strcmp(e->scenario, scenario) == 0) &&
	       (strcmp(e->platform, "any") == 0 ||
		       strcmp(e->platform, scenario_mode_name(platform)) == 0);
}

void policy_excuse(struct policy *p, struct gate_list *l, enum vm_mode platform, const char *today)
{
	for (size_t i = 0; i < l->count; i++) {
		struct gate *g = &l->items[i];
		char why[GATE_TEXT_MAX];

		if (g->status != GATE_UNMEASURED || g->need != GATE_PLATFORM)
			continue;
		for (size_t k = 0; k < p->excuse_count; k++) {
			struct policy_excuse *e = &p->excuses[k];

			if (e->gate != g->kind || !policy_covers(e, g->scenario, platform))
				continue;
			e->used = true;
			if (strcmp(today, e->expiry) > 0) {
				(void)snprintf(why, sizeof(why), "excuse expired %.10s: %.200s",
					e->expiry, g->text);
			} else {
				g->status = GATE_EXCUSED;
				(void)snprintf(why, sizeof(why), "%.110s (until %.10s: %.100s)",
					g->text, e->expiry, e->reason);
			}
			(void)snprintf(g->text, sizeof(g->text), "%s", why);
			break;
		}
	}
}

void policy_key(const struct image_info *image, unsigned int shift, char ret[POLICY_KEY_MAX])
{
	(void)snprintf(ret, POLICY_KEY_MAX,
		"image=%.16s kernel=%.100s qemu=%.100s shift=%u toolchain=%.100s", image->hash,
		image->kernel, image->qemu, shift, image->toolchain);
}

const struct policy_baseline *policy_find(
	const struct policy *p, enum gate_kind gate, const char *scenario, const char *key)
{
	for (size_t i = 0; i < p->item_count; i++)
		if (p->items[i].gate == gate && strcmp(p->items[i].scenario, scenario) == 0 &&
			strcmp(p->items[i].key, key) == 0)
			return &p->items[i];
	return NULL;
}

bool policy_has_baselines(enum gate_kind gate, const char **ret_unit)
{
	*ret_unit = "instructions";
	return gate == GATE_UNWIND_COST || gate == GATE_INGESTION;
}

void policy_judge_baseline(const struct policy *p, struct gate *g, const char *key, bool drifted,
	bool known, double value)
{
	const struct policy_baseline *b = policy_find(p, g->kind, g->scenario, key);
	bool is_ingestion = g->kind == GATE_INGESTION;
	double part = is_ingestion ? JUDGE_INGESTION_PART : JUDGE_UNWIND_PART;

	if (b && !drifted)
		g->need = GATE_REQUIRED;
	if (!known)
		gate_unmeasured(g, "not metered");
	else if (drifted)
		gate_unmeasured(g, "image has drifted from its package lock");
	else if (!b)
		gate_unmeasured(g, "no baseline for this image, kernel, QEMU and toolchain");
	else
		gate_check_most(g, "", b->value, value, part * b->value,
			"instructions per %s against the baseline %.0f",
			is_ingestion ? "pushed profile" : "sample", b->value);
}

static void policy_write_baseline(struct buf *b, const struct policy_baseline *x, bool first)
{
	(void)buf_printf(b, "%s\n\t\t{ \"gate\": \"%s\", \"scenario\": ", first ? "" : ",",
		gate_kind_name(x->gate));
	(void)str_append_json(b, x->scenario);
	(void)buf_append_str(b, ",\n\t\t  \"key\": ");
	(void)str_append_json(b, x->key);
	(void)buf_printf(b, ",\n\t\t  \"value\": %.0f, \"why\": ", x->value);
	(void)str_append_json(b, x->why);
	(void)buf_append_str(b, " }"); /* errors stick to the buffer, checked once */
}

int policy_rebaseline(const struct policy *p, const char *dir, enum gate_kind gate,
	const char *scenario, const char *key, double value, const char *why)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	const struct policy_baseline *old = policy_find(p, gate, scenario, key);
	struct policy_baseline moved = {
		.gate = gate, .scenario = scenario, .key = key, .value = value, .why = why};
	char path[1024];
	bool first = true;

	(void)buf_append_str(&b, "{\n\t\"schema\": \"flamelab-baselines/1\",\n\t\"baselines\": [");
	for (size_t i = 0; i < p->item_count; i++) {
		policy_write_baseline(&b, &p->items[i] == old ? &moved : &p->items[i], first);
		first = false;
	}
	if (!old)
		policy_write_baseline(&b, &moved, first);
	(void)buf_append_str(&b, "\n\t]\n}\n");
	if (buf_error(&b))
		return buf_error(&b);
	(void)snprintf(path, sizeof(path), "%s/baselines.json", dir);
	return file_write_atomic(path, b.data, b.size);
}

struct policy_counts policy_count(const struct gate_list *l)
{
	struct policy_counts c = {0};

	for (size_t i = 0; i < l->count; i++) {
		c.passed += l->items[i].status == GATE_PASS;
		c.failed += l->items[i].status == GATE_FAIL;
		c.unmeasured += l->items[i].status == GATE_UNMEASURED;
		c.excused += l->items[i].status == GATE_EXCUSED;
	}
	/* Gates that could not be judged for want of memory are missing data, too. */
	c.unmeasured += l->no_memory;
	return c;
}

enum policy_exit policy_exit_code(const struct policy_counts *c)
{
	if (c->failed)
		return POLICY_FAIL;
	if (c->infrastructure)
		return POLICY_INFRASTRUCTURE;
	if (c->unmeasured)
		return POLICY_INCONCLUSIVE;
	if (!c->passed)
		return POLICY_SKIPPED;
	return POLICY_PASS;
}
