/* A host's profile as one push.v1 request with a series per service; see window.h. */
#include <assert.h>
#include <errno.h>

#include "agent/window.h"
#include "base/arena.h"
#include "base/def.h"
#include "base/file.h"
#include "base/map.h"
#include "prof/pprof.h"
#include "prof/push.h"

#define PART_BYTES_MAX    (128UL << 20)
#define ENCODED_BYTES_MAX (64UL << 20)
#define PATH_SEPARATOR    "\x1f" /* stands in none of the parts of an id */

#define SERVICE_LABEL "service"

enum { LABELS = 4 };

struct service {
	const char *name;
	uint64_t weight;
	uint32_t rank; /* by weight */
};

struct encoder {
	const struct profile *profile;
	const struct window_labels *labels;
	struct arena *arena;
	struct map *index; /* name -> number in services */
	struct service *services;
	uint32_t service_count, allocated;
	uint32_t *of_sample; /* service of each sample */
	uint64_t samples;
};

static void encoder_done(struct encoder *e)
{
	arena_free(e->arena);
	map_free(e->index);
	free(e->services);
	free(e->of_sample);
}

static int add_service(struct encoder *e, const char *name)
{
	char *copy = arena_strndup(e->arena, name, WINDOW_SERVICE_MAX);

	if (!copy)
		return -ENOMEM;
	if (!e->services || e->service_count == e->allocated) {
		uint32_t more = MAX(16U, e->allocated * 2);
		struct service *services = realloc(e->services, more * sizeof(*services));

		if (!services)
			return -ENOMEM;
		e->services = services;
		e->allocated = more;
	}
	e->services[e->service_count++] = (struct service){.name = copy};
	return 0;
}

static int service_number(struct encoder *e, const char *name, uint32_t *ret)
{
	bool is_new;
	uint64_t *v = map_put(e->index, name, strlen(name), &is_new);

	if (!v)
		return -errno;
	if (is_new) {
		*v = e->service_count;
		if (add_service(e, name) < 0)
			return -ENOMEM;
	}
	*ret = (uint32_t)*v;
	return 0;
}

static int assign(struct encoder *e)
{
	size_t type = profile_default_type(e->profile);
	struct sample s;
	int r = 0;

	for (size_t i = 0; r == 0 && profile_sample_at(e->profile, i, &s); i++) {
		const char *name = profile_sample_label(e->profile, &s, SERVICE_LABEL);

		r = service_number(e, *name ? name : "unknown", &e->of_sample[i]);
		if (r < 0)
			break;
		assert(e->services && e->of_sample[i] < e->service_count);
		e->services[e->of_sample[i]].weight += (uint64_t)MAX(s.values[type], 0);
	}
	return r;
}

static int by_weight(const void *a, const void *b)
{
	const struct service *x = *(const struct service *const *)a;
	const struct service *y = *(const struct service *const *)b;

	if (x->weight != y->weight)
		return x->weight < y->weight ? 1 : -1;
	return strcmp(x->name, y->name);
}

/* Above the limit the lightest are one. */
static int merge_lightest(struct encoder *e)
{
	const struct service **sorted;
	uint32_t other;
	size_t samples = profile_sample_count(e->profile);
	int r;

	if (e->service_count <= WINDOW_SERVICES_MAX)
		return 0;
	r = service_number(e, "other", &other);
	if (r < 0)
		return r;
	sorted = arena_alloc(e->arena, e->service_count * sizeof(struct service *));
	if (!sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->service_count; i++)
		sorted[i] = &e->services[i];
	qsort(sorted, e->service_count, sizeof(struct service *), by_weight);
	for (uint32_t i = 0; i < e->service_count; i++)
		e->services[sorted[i] - e->services].rank = i;
	for (size_t i = 0; i < samples; i++)
		if (e->services[e->of_sample[i]].rank >= WINDOW_SERVICES_MAX - 1)
			e->of_sample[i] = other;
	return 0;
}

/* An id of this profile's string in the other one, or a negative error. */
static int64_t copy_text(const struct profile *from, uint32_t id, struct profile *to)
{
	return profile_str(to, profile_text(from, id));
}

static int copy_frame(const struct profile *from, uint32_t id, struct profile *to, uint32_t *ret)
{
	const struct frame *f = profile_frame_at(from, id);
	struct frame copy = *f;
	int64_t name = copy_text(from, f->name, to);
	int64_t file = copy_text(from, f->file, to);
	int64_t module = copy_text(from, f->module, to);
	int64_t r = MIN(name, MIN(file, module));

	if (r < 0)
		return (int)r;
	copy.name = (uint32_t)name;
	copy.file = (uint32_t)file;
	copy.module = (uint32_t)module;
	r = profile_frame(to, &copy);
	if (r < 0)
		return (int)r;
	*ret = (uint32_t)r;
	return 0;
}

static int copy_sample(const struct profile *from, const struct sample *s, struct profile *to)
{
	uint32_t frames[PROFILE_DEPTH_MAX];
	struct label labels[PROFILE_LABELS_MAX];
	uint32_t count = 0;
	int r = 0;

	for (uint32_t i = 0; i < s->frame_count && r == 0; i++)
		r = copy_frame(from, s->frames[i], to, &frames[i]);
	for (uint32_t i = 0; i < s->label_count && r == 0; i++) {
		int64_t key, str;

		/* The series says it for all of them. */
		if (strcmp(profile_text(from, s->labels[i].key), SERVICE_LABEL) == 0)
			continue;
		key = copy_text(from, s->labels[i].key, to);
		str = copy_text(from, s->labels[i].str, to);
		r = (int)MIN(MIN(key, str), 0);
		labels[count++] = (struct label){
			.key = (uint32_t)key, .str = (uint32_t)str, .num = s->labels[i].num};
	}
	if (r < 0)
		return r;
	return profile_add(to, frames, s->frame_count, labels, count, s->values);
}

static int copy_head(const struct profile *from, struct profile *to)
{
	struct sample_type period = profile_period_type(from);
	const char *key, *value;
	int64_t r = 0;

	for (size_t i = 0; i < profile_type_count(from) && r >= 0; i++) {
		struct sample_type t = profile_type_at(from, i);

		r = profile_sample_type(to, profile_text(from, t.type), profile_text(from, t.unit));
	}
	for (size_t i = 0; r >= 0 && profile_fact_at(from, i, &key, &value); i++)
		r = profile_set_fact(to, key, value);
	profile_set_time(to, profile_start_ns(from), profile_duration_ns(from));
	profile_set_period(to, profile_text(from, period.type), profile_text(from, period.unit),
		profile_period(from));
	return (int)MIN(r, 0);
}

/* What belongs to one service, as pprof. */
static int encode_part(struct encoder *e, uint32_t service, struct buf *out)
{
	_cleanup_(profile_freep) struct profile *part = NULL;
	struct sample s;
	int r = profile_new(PART_BYTES_MAX, &part);

	if (r == 0)
		r = copy_head(e->profile, part);
	/* Two recordings may cover the same time: the backend counts it once, and must tell them apart. */
	if (r == 0 && *e->labels->recording)
		r = profile_set_fact(part, "recording", e->labels->recording);
	for (size_t i = 0; r == 0 && profile_sample_at(e->profile, i, &s); i++) {
		if (e->of_sample[i] != service)
			continue;
		r = copy_sample(e->profile, &s, part);
		e->samples += (uint64_t)s.values[0];
	}
	return r == 0 ? pprof_write(part, out) : r;
}

static int fill_series(struct encoder *e, uint32_t service, struct push_series *s)
{
	_cleanup_(buf_done) struct buf pprof = BUF_INIT(ENCODED_BYTES_MAX);
	const char *name = e->services[service].name;
	struct push_label *labels = arena_alloc(e->arena, LABELS * sizeof(*labels));
	struct push_sample *sample = arena_alloc(e->arena, sizeof(*sample));
	char *id = arena_alloc(e->arena, WINDOW_ID_SIZE);
	char *bytes;
	int r = -ENOMEM;

	if (labels && sample && id)
		r = window_id(e->labels, name, profile_start_ns(e->profile), id);
	if (r == 0)
		r = encode_part(e, service, &pprof);
	if (r < 0)
		return r;
	bytes = arena_alloc(e->arena, pprof.size);
	if (!bytes)
		return -ENOBUFS;
	memcpy(bytes, pprof.data, pprof.size);
	labels[0] = (struct push_label){"__name__", "process_cpu"};
	labels[1] = (struct push_label){"host", e->labels->host};
	labels[2] = (struct push_label){"service_name", name};
	labels[3] = (struct push_label){"view", e->labels->view};
	*sample = (struct push_sample){.profile = bytes, .profile_size = pprof.size, .id = id};
	*s = (struct push_series){
		.labels = labels, .label_count = LABELS, .samples = sample, .sample_count = 1};
	return 0;
}

static int by_service_name(const void *a, const void *b)
{
	const struct push_series *x = a;
	const struct push_series *y = b;

	return strcmp(push_label(x, "service_name"), push_label(y, "service_name"));
}

static int fill_request(struct encoder *e, struct push_request *q)
{
	bool *has_samples = arena_alloc(e->arena, e->service_count + 1);
	size_t samples = profile_sample_count(e->profile);

	q->series = arena_alloc(e->arena, (e->service_count + 1) * sizeof(*q->series));
	if (!q->series || !has_samples)
		return -ENOMEM;
	for (size_t i = 0; i < samples; i++)
		has_samples[e->of_sample[i]] = true;
	for (uint32_t i = 0; i < e->service_count; i++) {
		int r = has_samples[i] ? fill_series(e, i, &q->series[q->series_count]) : 0;

		if (r < 0)
			return r;
		q->series_count += has_samples[i];
	}
	qsort(q->series, q->series_count, sizeof(*q->series), by_service_name);
	return 0;
}

static int encode(struct encoder *e, struct buf *out, struct window_result *ret)
{
	struct push_request q = {0};
	int r = e->arena && e->index && e->of_sample ? assign(e) : -ENOMEM;

	if (r == 0)
		r = merge_lightest(e);
	if (r == 0)
		r = fill_request(e, &q);
	if (r == 0 && q.series_count > 0)
		r = push_write(&q, out);
	if (r < 0)
		return r;
	ret->series = q.series_count;
	ret->samples = e->samples;
	ret->bytes = out->size;
	return 0;
}

int window_encode(const struct profile *p, const struct window_labels *l, struct buf *out,
	struct window_result *ret)
{
	size_t samples = profile_sample_count(p);
	struct encoder e = {
		.profile = p,
		.labels = l,
		.arena = arena_new(ENCODED_BYTES_MAX),
		.index = map_new(samples + 1),
		.of_sample = calloc(samples + 1, sizeof(*e.of_sample)),
	};
	int r = encode(&e, out, ret);

	encoder_done(&e);
	return r;
}

int window_id(const struct window_labels *l, const char *service, int64_t start_unix_ns,
	char ret[WINDOW_ID_SIZE])
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(8192);
	char hex[FILE_SHA256_HEX];
	int r = buf_printf(&text,
		"%s" PATH_SEPARATOR "%s" PATH_SEPARATOR "%s" PATH_SEPARATOR "%s" PATH_SEPARATOR
		"%lld",
		l->instance, l->recording, l->view, service, (long long)start_unix_ns);

	if (r == 0)
		r = file_sha256_mem(text.data, text.size, hex);
	if (r < 0)
		return r;
	/* Variant bits 10xx, version 8. */
	(void)snprintf(ret, WINDOW_ID_SIZE, "%.8s-%.4s-8%.3s-a%.3s-%.12s", hex, hex + 8, hex + 12,
		hex + 15, hex + 18);
	return 0;
}
