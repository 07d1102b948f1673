/*
 * The profile model: everything it holds is an interned record in one arena, so that memory_max is
 * the arena's limit and freeing is one call.
 *
 * Tables, each a struct intern, whose ids are dense and in order of first appearance:
 *	strings   the repaired text, NUL-terminated; id 0 is ""
 *	frames    struct frame
 *	stacks    frame ids, leaf first
 *	labels    sets of struct label, sorted
 *	samples   key {stack, label set}, then one int64 per sample type
 *
 * Invariants: (1) every id stored in a table is valid in the table it points to, because adders
 * check; (2) text is valid UTF-8 without control characters; (3) the number of sample types does
 * not change once a sample exists.
 */
#include "prof/profile.h"

#include <errno.h>
#include <stdarg.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/def.h"
#include "base/str.h"
#include "prof/intern.h"
#include "prof/profile_internal.h"

enum { FACTS_MAX = 1024 };

_Static_assert(sizeof(struct frame) == 32, "frames are interned by their bytes: no padding");
_Static_assert(sizeof(struct label) == 16, "labels are interned by their bytes: no padding");

struct sample_key {
	uint32_t stack;
	uint32_t labels;
};

struct fact {
	uint32_t key;
	uint32_t value;
};

struct profile {
	size_t memory_max;
	struct arena *arena;
	struct intern strings;
	struct intern frames;
	struct intern stacks;
	struct intern labels;
	struct intern samples;
	struct sample_type types[PROFILE_TYPES_MAX];
	size_t type_count;
	struct sample_type period_type;
	int64_t period;
	int64_t start_ns;
	int64_t duration_ns;
	struct fact *facts; /* room for FACTS_MAX once the first is set */
	size_t fact_count;
};

static const char *const kind_names[FRAME_KIND_COUNT] = {
	[FRAME_NATIVE] = "native",
	[FRAME_KERNEL] = "kernel",
	[FRAME_PYTHON] = "python",
	[FRAME_JAVA] = "java",
	[FRAME_NODE] = "node",
	[FRAME_GO] = "go",
	[FRAME_OTHER] = "other",
};

const char *frame_kind_name(enum frame_kind k)
{
	return (unsigned int)k < FRAME_KIND_COUNT ? kind_names[k] : "other";
}

bool frame_kind_parse(const char *name, enum frame_kind *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(kind_names); i++) {
		if (strcmp(name, kind_names[i]) == 0) {
			*ret = (enum frame_kind)i;
			return true;
		}
	}
	return false;
}

int profile_new(size_t memory_max, struct profile **ret)
{
	struct arena *arena = arena_new(memory_max);
	struct profile *p;

	if (!arena)
		return -ENOMEM;
	/* Not from the arena: the handle must exist whatever the limit. */
	p = calloc(1, sizeof(*p));
	if (!p) {
		arena_free(arena);
		return -ENOMEM;
	}
	p->memory_max = memory_max;
	p->arena = arena;
	intern_init(&p->strings, arena, memory_max);
	intern_init(&p->frames, arena, memory_max);
	intern_init(&p->stacks, arena, memory_max);
	intern_init(&p->labels, arena, memory_max);
	intern_init(&p->samples, arena, memory_max);
	if (intern_put(&p->strings, "", 0, 1, NULL) != 0) {
		profile_free(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	arena_free(p->arena);
	free(p);
}

void profile_freep(struct profile **p)
{
	profile_free(*p);
}

static bool is_plain(const char *s, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (s[i] < 0x20 || s[i] > 0x7e)
			return false;
	}
	return size <= PROFILE_NAME_MAX;
}

int64_t profile_string(struct profile *p, const char *s, size_t size)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(PROFILE_NAME_MAX + 1);
	int r;

	if (size == 0)
		return 0;
	if (is_plain(s, size))
		return intern_put(&p->strings, s, size, 1, NULL);
	r = str_append_utf8(&b, s, size, PROFILE_NAME_MAX);
	if (r < 0)
		return r;
	return intern_put(&p->strings, buf_str(&b), b.size, 1, NULL);
}

int64_t profile_str(struct profile *p, const char *s)
{
	return profile_string(p, s, strlen(s));
}

int64_t profile_frame(struct profile *p, const struct frame *f)
{
	size_t strings = p->strings.count;
	struct frame own = *f;

	own.pad = 0;
	if (own.name >= strings || own.file >= strings || own.module >= strings ||
		own.kind >= FRAME_KIND_COUNT)
		return -EINVAL;
	if (own.name == 0) {
		int64_t name = profile_str(p, "[unnamed]");

		if (name < 0)
			return name;
		own.name = (uint32_t)name;
	}
	return intern_put(&p->frames, &own, sizeof(own), 0, NULL);
}

static int make_type(struct profile *p, const char *type, const char *unit, struct sample_type *ret)
{
	int64_t t = profile_str(p, type);
	int64_t u = profile_str(p, unit);

	if (t < 0)
		return (int)t;
	if (u < 0)
		return (int)u;
	*ret = (struct sample_type){.type = (uint32_t)t, .unit = (uint32_t)u};
	return 0;
}

int64_t profile_sample_type(struct profile *p, const char *type, const char *unit)
{
	int r;

	if (p->type_count >= PROFILE_TYPES_MAX || p->samples.count)
		return -EINVAL;
	r = make_type(p, type, unit, &p->types[p->type_count]);
	if (r < 0)
		return r;
	return (int64_t)p->type_count++;
}

static bool label_before(const struct label *a, const struct label *b)
{
	if (a->key != b->key)
		return a->key < b->key;
	return a->str != b->str ? a->str < b->str : a->num < b->num;
}

/* Copies count labels, sorted, into to. -EINVAL for an unknown string. */
static int sort_labels(
	const struct profile *p, const struct label *labels, uint32_t count, struct label *to)
{
	for (uint32_t i = 0; i < count; i++) {
		struct label l = labels[i];
		uint32_t at = i;

		if (l.key >= p->strings.count || l.str >= p->strings.count)
			return -EINVAL;
		if (l.str)
			l.num = 0;
		for (; at > 0 && label_before(&l, &to[at - 1]); at--)
			to[at] = to[at - 1];
		to[at] = l;
	}
	return 0;
}

int profile_add(struct profile *p, const uint32_t *frames, uint32_t frame_count,
	const struct label *labels, uint32_t label_count, const int64_t *values)
{
	struct label sorted[PROFILE_LABELS_MAX];
	struct sample_key key;
	int64_t stack, set, id, *sums;
	int r;

	if (frame_count > PROFILE_DEPTH_MAX || label_count > PROFILE_LABELS_MAX || !p->type_count)
		return -EINVAL;
	for (uint32_t i = 0; i < frame_count; i++) {
		if (frames[i] >= p->frames.count)
			return -EINVAL;
	}
	r = sort_labels(p, labels, label_count, sorted);
	if (r < 0)
		return r;
	stack = intern_put(&p->stacks, frames, frame_count * sizeof(*frames), 0, NULL);
	if (stack < 0)
		return (int)stack;
	set = intern_put(&p->labels, sorted, label_count * sizeof(*sorted), 0, NULL);
	if (set < 0)
		return (int)set;
	key = (struct sample_key){.stack = (uint32_t)stack, .labels = (uint32_t)set};
	id = intern_put(&p->samples, &key, sizeof(key), p->type_count * sizeof(*sums), NULL);
	if (id < 0)
		return (int)id;
	sums = (int64_t *)((struct sample_key *)intern_at(&p->samples, (size_t)id, NULL) + 1);
	for (size_t i = 0; i < p->type_count; i++)
		sums[i] = profile_saturating_add(sums[i], values[i]);
	return 0;
}

int profile_mark_cut(struct profile *p, uint32_t frames[PROFILE_DEPTH_MAX])
{
	struct frame f = {.kind = FRAME_OTHER};
	int64_t id = profile_str(p, PROFILE_CUT_NAME);

	if (id < 0)
		return (int)id;
	f.name = (uint32_t)id;
	id = profile_frame(p, &f);
	if (id < 0)
		return (int)id;
	frames[PROFILE_DEPTH_MAX - 1] = (uint32_t)id;
	return 0;
}

/* The fact's slot: an existing one with this key, else the next free one. */
static struct fact *fact_slot(struct profile *p, uint32_t key)
{
	for (size_t i = 0; i < p->fact_count; i++) {
		if (p->facts[i].key == key)
			return &p->facts[i];
	}
	return p->fact_count < FACTS_MAX ? &p->facts[p->fact_count] : NULL;
}

int profile_set_fact(struct profile *p, const char *key, const char *value)
{
	struct fact *slot;
	int64_t k, v;

	if (!*key || strchr(key, '='))
		return -EINVAL;
	k = profile_str(p, key);
	if (k < 0)
		return (int)k;
	v = profile_str(p, value);
	if (v < 0)
		return (int)v;
	if (!p->facts) {
		p->facts = arena_alloc(p->arena, FACTS_MAX * sizeof(*p->facts));
		if (!p->facts)
			return intern_alloc_error(
				p->arena, p->memory_max, FACTS_MAX * sizeof(*p->facts));
	}
	slot = fact_slot(p, (uint32_t)k);
	if (!slot)
		return -ENOBUFS;
	if (slot == &p->facts[p->fact_count])
		p->fact_count++;
	*slot = (struct fact){.key = (uint32_t)k, .value = (uint32_t)v};
	return 0;
}

int profile_set_factf(struct profile *p, const char *key, const char *fmt, ...)
{
	char text[PROFILE_NAME_MAX + 64]; /* longer than a string may be, so that a cut is marked */
	va_list args;
	int r;

	va_start(args, fmt);
	r = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return r < 0 ? -EINVAL : profile_set_fact(p, key, text);
}

const char *profile_fact(const struct profile *p, const char *key)
{
	for (size_t i = 0; i < p->fact_count; i++) {
		if (strcmp(profile_text(p, p->facts[i].key), key) == 0)
			return profile_text(p, p->facts[i].value);
	}
	return NULL;
}

size_t profile_fact_count(const struct profile *p)
{
	return p->fact_count;
}

bool profile_fact_at(const struct profile *p, size_t i, const char **key, const char **value)
{
	if (i >= p->fact_count)
		return false;
	*key = profile_text(p, p->facts[i].key);
	*value = profile_text(p, p->facts[i].value);
	return true;
}

void profile_set_time(struct profile *p, int64_t start_unix_ns, int64_t duration_ns)
{
	p->start_ns = start_unix_ns;
	p->duration_ns = duration_ns;
}

int64_t profile_start_ns(const struct profile *p)
{
	return p->start_ns;
}

int64_t profile_duration_ns(const struct profile *p)
{
	return p->duration_ns;
}

void profile_set_period(struct profile *p, const char *type, const char *unit, int64_t period)
{
	/* At the memory limit the period stays unnamed; the number itself always fits. */
	(void)make_type(p, type, unit, &p->period_type);
	p->period = period;
}

int64_t profile_period(const struct profile *p)
{
	return p->period;
}

struct sample_type profile_period_type(const struct profile *p)
{
	return p->period_type;
}

const char *profile_text(const struct profile *p, uint32_t string)
{
	const char *s = intern_at(&p->strings, string, NULL);

	return s ? s : "";
}

size_t profile_string_count(const struct profile *p)
{
	return p->strings.count;
}

size_t profile_frame_count(const struct profile *p)
{
	return p->frames.count;
}

const struct frame *profile_frame_at(const struct profile *p, uint32_t frame)
{
	return intern_at(&p->frames, frame, NULL);
}

size_t profile_sample_count(const struct profile *p)
{
	return p->samples.count;
}

bool profile_sample_at(const struct profile *p, size_t i, struct sample *ret)
{
	const struct sample_key *key = intern_at(&p->samples, i, NULL);
	size_t frames_size, labels_size;

	if (!key)
		return false;
	ret->frames = intern_at(&p->stacks, key->stack, &frames_size);
	ret->frame_count = (uint32_t)(frames_size / sizeof(uint32_t));
	ret->labels = intern_at(&p->labels, key->labels, &labels_size);
	ret->label_count = (uint32_t)(labels_size / sizeof(struct label));
	ret->values = (const int64_t *)(key + 1);
	return true;
}

size_t profile_type_count(const struct profile *p)
{
	return p->type_count;
}

struct sample_type profile_type_at(const struct profile *p, size_t i)
{
	return i < p->type_count ? p->types[i] : (struct sample_type){0};
}

int64_t profile_total(const struct profile *p, size_t type)
{
	struct sample s;
	int64_t sum = 0;

	if (type >= p->type_count)
		return 0;
	for (size_t i = 0; profile_sample_at(p, i, &s); i++)
		sum = profile_saturating_add(sum, s.values[type]);
	return sum;
}

const char *profile_sample_label(const struct profile *p, const struct sample *s, const char *key)
{
	for (uint32_t i = 0; i < s->label_count; i++) {
		if (strcmp(profile_text(p, s->labels[i].key), key) == 0)
			return profile_text(p, s->labels[i].str);
	}
	return "";
}

size_t profile_default_type(const struct profile *p)
{
	return p->type_count ? p->type_count - 1 : 0;
}
