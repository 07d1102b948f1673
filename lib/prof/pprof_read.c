/*
 * Reading pprof of any tool. The layout is told in pprof.c.
 *
 * Three passes over the message, because fields may come in any order: (1) count the strings;
 * (2) note strings, sample types, and functions, mappings and locations by id; (3) samples. Each
 * location becomes its frames, innermost inlined line first, between (2) and (3), so a dangling id
 * is found whether or not a sample uses it. References go one way (sample, location, function or
 * mapping, string), so no input can make a cycle.
 *
 * What the model has no place for is left: build ids, columns, units of numeric labels, comments
 * that are no facts, drop_frames. Labels above PROFILE_LABELS_MAX are dropped and counted in the
 * fact "read.labels_dropped"; deeper stacks are cut as profile_internal.h says.
 */
#include "prof/pprof.h"

#include <errno.h>

#include "base/arena.h"
#include "base/def.h"
#include "prof/gunzip.h"
#include "prof/intern.h"
#include "prof/pprof_internal.h"
#include "prof/profile_internal.h"
#include "prof/proto.h"

enum { TEXT_MAX = PROFILE_NAME_MAX + 64 };

struct raw_string {
	const char *data;
	size_t size;
	uint32_t id_plus_1; /* in the profile, once it was needed */
};

/* Records of the id tables; the key, a 64-bit id, stands before them. */
struct function {
	uint64_t id, name, system_name, file;
};

struct mapping {
	uint64_t id, start, limit, offset, file;
};

struct location {
	uint64_t id, mapping, address;
	struct cursor lines; /* the Location message */
	uint32_t *frames;    /* at most PROFILE_DEPTH_MAX + 1, which is enough to see a cut */
	uint32_t frame_count;
};

struct reader {
	struct profile *p;
	struct arena *arena;
	size_t memory_max;
	struct cursor message;
	const char *why;
	struct raw_string *strings;
	size_t string_count;
	struct raw_string empty; /* what index 0 means when there is no string table */
	struct intern functions;
	struct intern mappings;
	struct intern locations;
	uint64_t labels_dropped;
};

static int bad(struct reader *r, const char *why)
{
	r->why = why;
	return -EBADMSG;
}

/* The text as the file has it; strings[0] of an empty table is "". */
static int raw_string(struct reader *r, uint64_t index, struct raw_string **ret)
{
	if (index == 0 && r->string_count == 0) {
		*ret = &r->empty;
		return 0;
	}
	if (index >= r->string_count)
		return bad(r, "string index out of range");
	*ret = &r->strings[index];
	return 0;
}

/* The profile's id of a string, or an error. */
static int64_t string_id(struct reader *r, uint64_t index)
{
	struct raw_string *s;
	int64_t id;
	int e = raw_string(r, index, &s);

	if (e < 0)
		return e;
	if (s->id_plus_1)
		return (int64_t)s->id_plus_1 - 1;
	id = profile_string(r->p, s->data, s->size);
	if (id >= 0)
		s->id_plus_1 = (uint32_t)id + 1;
	return id;
}

/* Copies record, whose first member is its id, into the table under that id. */
static int put_record(
	struct reader *r, struct intern *t, const void *record, size_t size, const char *why_twice)
{
	bool is_new;
	int64_t i = intern_put(t, record, sizeof(uint64_t), size - sizeof(uint64_t), &is_new);

	if (i < 0)
		return (int)i;
	if (!is_new)
		return bad(r, why_twice);
	memcpy(intern_at(t, (size_t)i, NULL), record, size);
	return 0;
}

static void *find_record(const struct intern *t, uint64_t id)
{
	uint32_t i;

	return intern_get(t, &id, sizeof(id), &i) ? intern_at(t, i, NULL) : NULL;
}

static int read_function(struct reader *r, struct cursor c)
{
	struct function fn = {0};
	struct proto_field f;

	while (proto_next(&c, &f)) {
		if (f.wire != PROTO_VARINT)
			continue;
		if (f.number == PPROF_FUNCTION_ID)
			fn.id = f.value;
		else if (f.number == PPROF_FUNCTION_NAME)
			fn.name = f.value;
		else if (f.number == PPROF_FUNCTION_SYSTEM_NAME)
			fn.system_name = f.value;
		else if (f.number == PPROF_FUNCTION_FILENAME)
			fn.file = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed function");
	if (!fn.id)
		return bad(r, "function with id 0");
	return put_record(r, &r->functions, &fn, sizeof(fn), "function id appears twice");
}

static int read_mapping(struct reader *r, struct cursor c)
{
	struct mapping m = {0};
	struct proto_field f;

	while (proto_next(&c, &f)) {
		if (f.wire != PROTO_VARINT)
			continue;
		if (f.number == PPROF_MAPPING_ID)
			m.id = f.value;
		else if (f.number == PPROF_MAPPING_START)
			m.start = f.value;
		else if (f.number == PPROF_MAPPING_LIMIT)
			m.limit = f.value;
		else if (f.number == PPROF_MAPPING_OFFSET)
			m.offset = f.value;
		else if (f.number == PPROF_MAPPING_FILENAME)
			m.file = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed mapping");
	if (!m.id)
		return bad(r, "mapping with id 0");
	return put_record(r, &r->mappings, &m, sizeof(m), "mapping id appears twice");
}

static int read_location(struct reader *r, struct cursor c)
{
	struct location l = {.lines = c};
	struct proto_field f;

	while (proto_next(&c, &f)) {
		if (f.wire != PROTO_VARINT)
			continue;
		if (f.number == PPROF_LOCATION_ID)
			l.id = f.value;
		else if (f.number == PPROF_LOCATION_MAPPING)
			l.mapping = f.value;
		else if (f.number == PPROF_LOCATION_ADDRESS)
			l.address = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed location");
	if (!l.id)
		return bad(r, "location with id 0");
	return put_record(r, &r->locations, &l, sizeof(l), "location id appears twice");
}

/* "[file+0xoff]" as the design wants it for what has no name. */
static int64_t address_name(
	struct reader *r, const struct location *l, const struct mapping *m, const char *module)
{
	const char *slash = strrchr(module, '/');
	const char *base = slash ? slash + 1 : module;
	uint64_t address = l->address;
	char text[TEXT_MAX];

	if (m && address >= m->start && address < m->limit)
		address = address - m->start + m->offset;
	if (*base)
		(void)snprintf(
			text, sizeof(text), "[%s+0x%llx]", base, (unsigned long long)address);
	else
		(void)snprintf(text, sizeof(text), "[0x%llx]", (unsigned long long)address);
	return profile_str(r->p, text);
}

/* The kind that system_name "KIND:NAME" tells, else what the module suggests. */
static enum frame_kind kind_of(
	const struct raw_string *name, const struct raw_string *system, const char *module)
{
	for (int k = 0; k < FRAME_KIND_COUNT; k++) {
		const char *kind = frame_kind_name((enum frame_kind)k);
		size_t n = strlen(kind);

		if (system->size == n + 1 + name->size && memcmp(system->data, kind, n) == 0 &&
			system->data[n] == ':' &&
			memcmp(system->data + n + 1, name->data, name->size) == 0)
			return (enum frame_kind)k;
	}
	return pprof_kind_of_module(module);
}

/* One line's frame id or an error. function 0: a location without one. */
static int64_t make_frame(struct reader *r, const struct location *l, const struct mapping *m,
	uint64_t function, uint64_t line)
{
	const struct function *fn = function ? find_record(&r->functions, function) : NULL;
	uint64_t name_index = fn ? fn->name : 0;
	uint64_t system_index = fn ? fn->system_name : 0;
	int64_t module = m ? string_id(r, m->file) : 0;
	struct raw_string *name, *system;
	int64_t id, file = 0;
	struct frame f = {.address = l->address};

	if (function && !fn)
		return bad(r, "line with an unknown function id");
	if (module < 0)
		return module;
	if (raw_string(r, name_index, &name) < 0 || raw_string(r, system_index, &system) < 0)
		return -EBADMSG;
	if (name->size)
		id = string_id(r, name_index);
	else if (system->size)
		id = string_id(r, system_index);
	else
		id = address_name(r, l, m, profile_text(r->p, (uint32_t)module));
	if (fn)
		file = string_id(r, fn->file);
	if (id < 0 || file < 0)
		return id < 0 ? id : file;
	f.name = (uint32_t)id;
	f.file = (uint32_t)file;
	f.module = (uint32_t)module;
	f.line = (int64_t)line < 0 ? 0 : (uint32_t)MIN(line, UINT32_MAX);
	f.kind = kind_of(name, system, profile_text(r->p, f.module));
	return profile_frame(r->p, &f);
}

/* One Line message's frame id or an error. */
static int64_t read_line(
	struct reader *r, const struct location *l, const struct mapping *m, struct cursor c)
{
	uint64_t function = 0, line = 0;
	struct proto_field f;

	while (proto_next(&c, &f)) {
		if (f.number == PPROF_LINE_FUNCTION && f.wire == PROTO_VARINT)
			function = f.value;
		else if (f.number == PPROF_LINE_LINE && f.wire == PROTO_VARINT)
			line = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed line");
	return make_frame(r, l, m, function, line);
}

static int expand_location(struct reader *r, struct location *l)
{
	const struct mapping *m = l->mapping ? find_record(&r->mappings, l->mapping) : NULL;
	uint32_t frames[PROFILE_DEPTH_MAX + 1];
	uint32_t count = 0;
	struct cursor c = l->lines;
	struct proto_field f;
	int64_t id;

	if (l->mapping && !m)
		return bad(r, "location with an unknown mapping id");
	while (proto_next(&c, &f)) {
		if (f.number != PPROF_LOCATION_LINE || f.wire != PROTO_BYTES)
			continue;
		id = read_line(r, l, m, f.bytes);
		if (id < 0)
			return (int)id;
		if (count < ARRAY_SIZE(frames))
			frames[count++] = (uint32_t)id;
	}
	if (!count) {
		id = make_frame(r, l, m, 0, 0);
		if (id < 0)
			return (int)id;
		frames[count++] = (uint32_t)id;
	}
	l->frames = arena_alloc(r->arena, count * sizeof(*frames));
	if (!l->frames)
		return intern_alloc_error(r->arena, r->memory_max, count * sizeof(*frames));
	memcpy(l->frames, frames, count * sizeof(*frames));
	l->frame_count = count;
	return 0;
}

static int count_strings(struct reader *r)
{
	struct cursor c = r->message;
	struct proto_field f;
	size_t count = 0, size;

	while (proto_next(&c, &f))
		count += f.number == PPROF_STRING && f.wire == PROTO_BYTES;
	if (cursor_error(&c))
		return bad(r, "not a protobuf message");
	if (!count)
		return 0;
	size = count * sizeof(*r->strings);
	r->strings = arena_alloc(r->arena, size);
	return r->strings ? 0 : intern_alloc_error(r->arena, r->memory_max, size);
}

static void note_string(struct reader *r, struct cursor c)
{
	size_t size = cursor_left(&c);
	const char *data = cursor_bytes(&c, size);

	r->strings[r->string_count++] = (struct raw_string){.data = size ? data : "", .size = size};
}

static int read_tables(struct reader *r)
{
	struct cursor c = r->message;
	struct proto_field f;
	int e = 0;

	while (e == 0 && proto_next(&c, &f)) {
		if (f.wire != PROTO_BYTES)
			continue;
		if (f.number == PPROF_STRING)
			note_string(r, f.bytes);
		else if (f.number == PPROF_FUNCTION)
			e = read_function(r, f.bytes);
		else if (f.number == PPROF_MAPPING)
			e = read_mapping(r, f.bytes);
		else if (f.number == PPROF_LOCATION)
			e = read_location(r, f.bytes);
	}
	if (e == 0 && r->string_count && r->strings[0].size)
		return bad(r, "the first string is not empty");
	for (size_t i = 0; e == 0 && i < r->locations.count; i++)
		e = expand_location(r, intern_at(&r->locations, i, NULL));
	return e;
}

static int read_value_type(struct reader *r, struct cursor c, struct sample_type *ret)
{
	uint64_t type = 0, unit = 0;
	struct proto_field f;
	int64_t t, u;

	while (proto_next(&c, &f)) {
		if (f.number == PPROF_VALUE_TYPE_TYPE && f.wire == PROTO_VARINT)
			type = f.value;
		else if (f.number == PPROF_VALUE_TYPE_UNIT && f.wire == PROTO_VARINT)
			unit = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed value type");
	t = string_id(r, type);
	u = string_id(r, unit);
	if (t < 0 || u < 0)
		return (int)(t < 0 ? t : u);
	*ret = (struct sample_type){.type = (uint32_t)t, .unit = (uint32_t)u};
	return 0;
}

static int add_sample_type(struct reader *r, struct cursor c)
{
	struct sample_type t;
	int64_t e = read_value_type(r, c, &t);

	if (e == 0)
		e = profile_sample_type(
			r->p, profile_text(r->p, t.type), profile_text(r->p, t.unit));
	if (e == -EINVAL)
		return bad(r, "more than 8 sample types");
	return e < 0 ? (int)e : 0;
}

static int read_fact(struct reader *r, uint64_t index)
{
	static const char prefix[] = PPROF_FACT_PREFIX;
	const size_t n = sizeof(prefix) - 1;
	const char *key_text, *equals, *end;
	struct raw_string *s;
	int64_t key, value;
	int e = raw_string(r, index, &s);

	if (e < 0)
		return e;
	if (s->size <= n || memcmp(s->data, prefix, n) != 0)
		return 0;
	key_text = s->data + n;
	end = s->data + s->size;
	equals = memchr(key_text, '=', s->size - n);
	if (!equals || equals == key_text)
		return 0;
	key = profile_string(r->p, key_text, (size_t)(equals - key_text));
	if (key < 0)
		return (int)key;
	value = profile_string(r->p, equals + 1, (size_t)(end - equals - 1));
	if (value < 0)
		return (int)value;
	return profile_set_fact(
		r->p, profile_text(r->p, (uint32_t)key), profile_text(r->p, (uint32_t)value));
}

static int read_header(struct reader *r)
{
	struct sample_type period_type = {0};
	int64_t start_ns = 0, duration_ns = 0, period = 0;
	struct cursor c = r->message;
	struct proto_field f;
	uint64_t index;
	int e = 0;

	while (e == 0 && proto_next(&c, &f)) {
		if (f.number == PPROF_SAMPLE_TYPE && f.wire == PROTO_BYTES)
			e = add_sample_type(r, f.bytes);
		else if (f.number == PPROF_PERIOD_TYPE && f.wire == PROTO_BYTES)
			e = read_value_type(r, f.bytes, &period_type);
		else if (f.number == PPROF_TIME && f.wire == PROTO_VARINT)
			start_ns = (int64_t)f.value;
		else if (f.number == PPROF_DURATION && f.wire == PROTO_VARINT)
			duration_ns = (int64_t)f.value;
		else if (f.number == PPROF_PERIOD && f.wire == PROTO_VARINT)
			period = (int64_t)f.value;
		else if (f.number == PPROF_COMMENT)
			while (e == 0 && proto_repeated(&f, &index))
				e = read_fact(r, index);
	}
	profile_set_time(r->p, start_ns, duration_ns);
	profile_set_period(r->p, profile_text(r->p, period_type.type),
		profile_text(r->p, period_type.unit), period);
	return e;
}

static int read_label(struct reader *r, struct cursor c, struct label *ret)
{
	uint64_t key = 0, str = 0, num = 0;
	struct proto_field f;
	int64_t k, s;

	while (proto_next(&c, &f)) {
		if (f.wire != PROTO_VARINT)
			continue;
		if (f.number == PPROF_LABEL_KEY)
			key = f.value;
		else if (f.number == PPROF_LABEL_STR)
			str = f.value;
		else if (f.number == PPROF_LABEL_NUM)
			num = f.value;
	}
	if (cursor_error(&c))
		return bad(r, "malformed label");
	k = string_id(r, key);
	s = string_id(r, str);
	if (k < 0 || s < 0)
		return (int)(k < 0 ? k : s);
	*ret = (struct label){.key = (uint32_t)k, .str = (uint32_t)s, .num = (int64_t)num};
	return 0;
}

struct sample_draft {
	uint32_t frames[PROFILE_DEPTH_MAX];
	struct label labels[PROFILE_LABELS_MAX];
	int64_t values[PROFILE_TYPES_MAX];
	uint32_t frame_count;
	uint32_t label_count;
	size_t value_count;
	bool cut;
};

static int add_location(struct reader *r, uint64_t id, struct sample_draft *d)
{
	const struct location *l = find_record(&r->locations, id);

	if (!l)
		return bad(r, "sample with an unknown location id");
	for (uint32_t i = 0; i < l->frame_count && !d->cut; i++) {
		if (d->frame_count == PROFILE_DEPTH_MAX)
			d->cut = true;
		else
			d->frames[d->frame_count++] = l->frames[i];
	}
	return 0;
}

static int read_sample_field(struct reader *r, struct proto_field *f, struct sample_draft *d)
{
	uint64_t value;
	int e = 0;

	switch (f->number) {
	case PPROF_SAMPLE_LOCATION:
		while (e == 0 && proto_repeated(f, &value))
			e = add_location(r, value, d);
		break;
	case PPROF_SAMPLE_VALUE:
		while (proto_repeated(f, &value)) {
			if (d->value_count < PROFILE_TYPES_MAX)
				d->values[d->value_count] = (int64_t)value;
			d->value_count++;
		}
		break;
	case PPROF_SAMPLE_LABEL:
		if (f->wire != PROTO_BYTES)
			return bad(r, "malformed label");
		if (d->label_count == PROFILE_LABELS_MAX)
			r->labels_dropped++;
		else
			e = read_label(r, f->bytes, &d->labels[d->label_count++]);
		return e;
	default:
		return 0;
	}
	if (e == 0 && f->wire == PROTO_BYTES && cursor_error(&f->bytes))
		return bad(r, "malformed sample");
	return e;
}

static int read_sample(struct reader *r, struct cursor c)
{
	struct sample_draft d;
	struct proto_field f;
	int e = 0;

	d.frame_count = d.label_count = 0;
	d.value_count = 0;
	d.cut = false;
	while (e == 0 && proto_next(&c, &f))
		e = read_sample_field(r, &f, &d);
	if (e < 0)
		return e;
	if (cursor_error(&c))
		return bad(r, "malformed sample");
	if (profile_type_count(r->p) == 0)
		return bad(r, "samples without a sample type");
	if (d.value_count != profile_type_count(r->p))
		return bad(r, "a sample's values do not match the sample types");
	if (d.cut)
		e = profile_mark_cut(r->p, d.frames);
	if (e == 0)
		e = profile_add(r->p, d.frames, d.frame_count, d.labels, d.label_count, d.values);
	return e;
}

static int read_message(struct reader *r)
{
	struct cursor c = r->message;
	struct proto_field f;
	int e = count_strings(r);

	if (e == 0)
		e = read_tables(r);
	if (e == 0)
		e = read_header(r);
	while (e == 0 && proto_next(&c, &f)) {
		if (f.number == PPROF_SAMPLE && f.wire == PROTO_BYTES)
			e = read_sample(r, f.bytes);
	}
	if (e == 0 && r->labels_dropped)
		e = profile_set_factf(
			r->p, "read.labels_dropped", "%llu", (unsigned long long)r->labels_dropped);
	return e;
}

static int open_message(struct reader *r, const void *data, size_t size, struct buf *inflated)
{
	int e;

	if (gunzip_is(data, size)) {
		e = gunzip(data, size, inflated);
		if (e == -EBADMSG)
			return bad(r, "damaged gzip data");
		if (e < 0)
			return e;
		data = inflated->data;
		size = inflated->size;
	}
	if (!size)
		return bad(r, "empty input");
	r->message = cursor_over(data, size);
	return 0;
}

static const char *reason_of(int error)
{
	if (error == -EFBIG)
		return "inflates above the memory limit";
	return error == -ENOBUFS ? "too large for the memory limit" : "out of memory";
}

int pprof_read(
	const void *data, size_t size, size_t memory_max, const char **why, struct profile **ret)
{
	_cleanup_(buf_done) struct buf inflated = BUF_INIT(memory_max);
	_cleanup_(arena_freep) struct arena *arena = arena_new(memory_max);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct reader r = {
		.arena = arena, .memory_max = memory_max, .empty = {.data = "", .id_plus_1 = 1}};
	int e;

	if (!arena)
		return -ENOMEM;
	e = profile_new(memory_max, &p);
	if (e < 0)
		return e;
	r.p = p;
	intern_init(&r.functions, arena, memory_max);
	intern_init(&r.mappings, arena, memory_max);
	intern_init(&r.locations, arena, memory_max);
	e = open_message(&r, data, size, &inflated);
	if (e == 0)
		e = read_message(&r);
	if (e < 0) {
		if (why)
			*why = r.why ? r.why : reason_of(e);
		return e;
	}
	*ret = steal_ptr(&p);
	return 0;
}
