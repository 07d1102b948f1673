/*
 * Writing pprof: google/pprof's profile.proto, gzip'd.
 *
 * Where the model's fields stand in the message (reading is pprof_read.c):
 *	frame.name, file	Function.name, Function.filename
 *	frame.line, address	Line.line, Location.address
 *	frame.module		Mapping.filename, one Mapping per module; none for ""
 *	frame.kind		Function.system_name = "KIND:NAME", e.g. "python:main.run", unless
 *the kind is what the module suggests: kernel for "[kernel...", "vmlinux" and
 *				"*.ko", else native. A system_name that is not the name also keeps
 *				`go tool pprof` from demangling or shortening it.
 *	facts			comment "flame.KEY=VALUE"
 * has_functions is set in every Mapping, so that nobody looks for the file to symbolize it again.
 *
 * The bytes depend on the samples and their order only: strings, locations, functions and mappings
 * are numbered at first use, labels are sorted by text, the gzip header carries no time. Samples
 * stand before the tables they refer to, so one pass writes everything; protobuf readers take
 * fields in any order.
 *
 * The message is compressed in pieces as it grows and never held whole.
 */
#include "prof/pprof.h"

#include <errno.h>
#include <zlib.h>

#include "base/arena.h"
#include "base/def.h"
#include "prof/intern.h"
#include "prof/pprof_internal.h"
#include "prof/proto.h"

enum { CHUNK_SIZE = 64 * 1024, RECORD_SIZE_MAX = 1024 * 1024, GZIP_WINDOW_BITS = 15 + 16 };

/* Interned keys; the id written is the index plus one, as id 0 is reserved. */
struct function_key {
	uint32_t name; /* pprof string ids */
	uint32_t system_name;
	uint32_t file;
};

struct writer {
	const struct profile *profile;
	struct arena *arena;
	struct intern strings;   /* pprof's string table */
	struct intern locations; /* key: frame id */
	struct intern functions; /* key: struct function_key */
	struct intern mappings;  /* key: pprof string id of the file name */
	struct buf message;      /* top-level fields not compressed yet */
	struct buf record;       /* the submessage being built */
	struct buf inner;        /* one level deeper */
	struct buf text;
	z_stream zip;
	struct buf *out;
	int error; /* the first one, nothing is done after it */
};

enum frame_kind pprof_kind_of_module(const char *module)
{
	size_t size = strlen(module);

	if (strncmp(module, "[kernel", 7) == 0 || strncmp(module, "vmlinux", 7) == 0)
		return FRAME_KERNEL;
	if (size > 3 && strcmp(module + size - 3, ".ko") == 0)
		return FRAME_KERNEL;
	return FRAME_NATIVE;
}

static void note(struct writer *w, int64_t r)
{
	if (r < 0 && !w->error)
		w->error = (int)r;
}

/* Compresses what is pending. flush: Z_NO_FLUSH, or Z_FINISH at the end. */
static void compress_pending(struct writer *w, int flush)
{
	int r = Z_OK;

	w->zip.next_in = (Bytef *)w->message.data;
	w->zip.avail_in = (uInt)w->message.size;
	while (!w->error && r != Z_STREAM_END && (w->zip.avail_in || flush == Z_FINISH)) {
		size_t left = w->out->size_max - w->out->size;
		size_t room = MAX(MIN(left, (size_t)CHUNK_SIZE / 4), 1U);
		void *to;

		note(w, buf_reserve(w->out, room, &to));
		if (w->error)
			break;
		w->zip.next_out = to;
		w->zip.avail_out = (uInt)room;
		r = deflate(&w->zip, flush);
		w->out->size += room - w->zip.avail_out;
		w->out->data[w->out->size] = '\0';
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			note(w, -ENOMEM);
	}
	buf_reset(&w->message);
}

/* Closes w->record as field number of the Profile message. */
static void end_record(struct writer *w, uint32_t field)
{
	note(w, buf_error(&w->record));
	note(w, proto_put_bytes(&w->message, field, buf_str(&w->record), w->record.size));
	buf_reset(&w->record);
	if (w->message.size >= CHUNK_SIZE)
		compress_pending(w, Z_NO_FLUSH);
}

static uint32_t string_id(struct writer *w, const char *s)
{
	int64_t id = intern_put(&w->strings, s, strlen(s), 1, NULL);

	note(w, id);
	return id < 0 ? 0 : (uint32_t)id;
}

static uint32_t model_string(struct writer *w, uint32_t string)
{
	return string_id(w, profile_text(w->profile, string));
}

/* The id (index + 1) of key's record in one of the tables. */
static uint64_t table_id(struct writer *w, struct intern *t, const void *key, size_t size)
{
	int64_t id = intern_put(t, key, size, 0, NULL);

	note(w, id);
	return id < 0 ? 0 : (uint64_t)id + 1;
}

static void put_value_type(struct writer *w, uint32_t field, struct sample_type t)
{
	(void)proto_put_varint(&w->record, PPROF_VALUE_TYPE_TYPE, model_string(w, t.type));
	(void)proto_put_varint(&w->record, PPROF_VALUE_TYPE_UNIT, model_string(w, t.unit));
	end_record(w, field);
}

/* Label order must not depend on string ids, which differ from profile to profile. */
static bool label_before(const struct profile *p, const struct label *a, const struct label *b)
{
	int r = strcmp(profile_text(p, a->key), profile_text(p, b->key));

	if (r == 0)
		r = strcmp(profile_text(p, a->str), profile_text(p, b->str));
	return r ? r < 0 : a->num < b->num;
}

static void put_labels(struct writer *w, const struct sample *s)
{
	struct label sorted[PROFILE_LABELS_MAX];

	for (uint32_t i = 0; i < s->label_count; i++) {
		uint32_t at = i;

		for (; at > 0 && label_before(w->profile, &s->labels[i], &sorted[at - 1]); at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = s->labels[i];
	}
	for (uint32_t i = 0; i < s->label_count; i++) {
		buf_reset(&w->inner);
		(void)proto_put_varint(&w->inner, PPROF_LABEL_KEY, model_string(w, sorted[i].key));
		(void)proto_put_varint(&w->inner, PPROF_LABEL_STR, model_string(w, sorted[i].str));
		(void)proto_put_varint(&w->inner, PPROF_LABEL_NUM, (uint64_t)sorted[i].num);
		note(w, buf_error(&w->inner));
		(void)proto_put_bytes(
			&w->record, PPROF_SAMPLE_LABEL, buf_str(&w->inner), w->inner.size);
	}
}

static void put_sample(struct writer *w, const struct sample *s)
{
	uint64_t ids[PROFILE_DEPTH_MAX];
	uint64_t values[PROFILE_TYPES_MAX];
	size_t types = profile_type_count(w->profile);

	for (uint32_t i = 0; i < s->frame_count; i++)
		ids[i] = table_id(w, &w->locations, &s->frames[i], sizeof(s->frames[i]));
	for (size_t i = 0; i < types; i++)
		values[i] = (uint64_t)s->values[i];
	(void)proto_put_packed(&w->record, PPROF_SAMPLE_LOCATION, ids, s->frame_count);
	(void)proto_put_packed(&w->record, PPROF_SAMPLE_VALUE, values, types);
	put_labels(w, s);
	end_record(w, PPROF_SAMPLE);
}

static uint64_t function_id(struct writer *w, const struct frame *f)
{
	const char *name = profile_text(w->profile, f->name);
	struct function_key key = {
		.name = model_string(w, f->name), .file = model_string(w, f->file)};

	if (f->kind != pprof_kind_of_module(profile_text(w->profile, f->module))) {
		buf_reset(&w->text);
		note(w, buf_append_str(&w->text, frame_kind_name((enum frame_kind)f->kind)));
		note(w, buf_append_char(&w->text, ':'));
		note(w, buf_append_str(&w->text, name));
		key.system_name = string_id(w, buf_str(&w->text));
	}
	return table_id(w, &w->functions, &key, sizeof(key));
}

static void put_locations(struct writer *w)
{
	for (size_t i = 0; i < w->locations.count; i++) {
		const uint32_t *id = intern_at(&w->locations, i, NULL);
		const struct frame *f = profile_frame_at(w->profile, *id);
		uint32_t module = model_string(w, f->module);

		(void)proto_put_varint(&w->record, PPROF_LOCATION_ID, i + 1);
		if (f->module)
			(void)proto_put_varint(&w->record, PPROF_LOCATION_MAPPING,
				table_id(w, &w->mappings, &module, sizeof(module)));
		(void)proto_put_varint(&w->record, PPROF_LOCATION_ADDRESS, f->address);
		buf_reset(&w->inner);
		(void)proto_put_varint(&w->inner, PPROF_LINE_FUNCTION, function_id(w, f));
		(void)proto_put_varint(&w->inner, PPROF_LINE_LINE, f->line);
		note(w, buf_error(&w->inner));
		(void)proto_put_bytes(
			&w->record, PPROF_LOCATION_LINE, buf_str(&w->inner), w->inner.size);
		end_record(w, PPROF_LOCATION);
	}
}

static void put_tables(struct writer *w)
{
	for (size_t i = 0; i < w->mappings.count; i++) {
		const uint32_t *file = intern_at(&w->mappings, i, NULL);

		(void)proto_put_varint(&w->record, PPROF_MAPPING_ID, i + 1);
		(void)proto_put_varint(&w->record, PPROF_MAPPING_FILENAME, *file);
		(void)proto_put_varint(&w->record, PPROF_MAPPING_HAS_FUNCTIONS, 1);
		(void)proto_put_varint(&w->record, PPROF_MAPPING_HAS_FILENAMES, 1);
		(void)proto_put_varint(&w->record, PPROF_MAPPING_HAS_LINE_NUMBERS, 1);
		end_record(w, PPROF_MAPPING);
	}
	for (size_t i = 0; i < w->functions.count; i++) {
		const struct function_key *f = intern_at(&w->functions, i, NULL);

		(void)proto_put_varint(&w->record, PPROF_FUNCTION_ID, i + 1);
		(void)proto_put_varint(&w->record, PPROF_FUNCTION_NAME, f->name);
		(void)proto_put_varint(&w->record, PPROF_FUNCTION_SYSTEM_NAME, f->system_name);
		(void)proto_put_varint(&w->record, PPROF_FUNCTION_FILENAME, f->file);
		end_record(w, PPROF_FUNCTION);
	}
}

static void put_facts(struct writer *w)
{
	const char *key, *value;

	for (size_t i = 0; profile_fact_at(w->profile, i, &key, &value); i++) {
		uint64_t id;

		buf_reset(&w->text);
		note(w, buf_printf(&w->text, PPROF_FACT_PREFIX "%s=%s", key, value));
		id = string_id(w, buf_str(&w->text));
		/* Never 0, which a repeated field could not leave out. */
		note(w, proto_put_varint(&w->message, PPROF_COMMENT, id));
	}
}

static void put_profile(struct writer *w)
{
	const struct profile *p = w->profile;
	struct sample_type period = profile_period_type(p);
	struct sample s;

	(void)string_id(w, ""); /* pprof wants it first */
	for (size_t i = 0; i < profile_type_count(p); i++)
		put_value_type(w, PPROF_SAMPLE_TYPE, profile_type_at(p, i));
	for (size_t i = 0; !w->error && profile_sample_at(p, i, &s); i++)
		put_sample(w, &s);
	put_locations(w);
	put_tables(w);
	note(w, proto_put_varint(&w->message, PPROF_TIME, (uint64_t)profile_start_ns(p)));
	note(w, proto_put_varint(&w->message, PPROF_DURATION, (uint64_t)profile_duration_ns(p)));
	if (period.type || period.unit)
		put_value_type(w, PPROF_PERIOD_TYPE, period);
	note(w, proto_put_varint(&w->message, PPROF_PERIOD, (uint64_t)profile_period(p)));
	put_facts(w);
	for (size_t i = 0; i < w->strings.count; i++) {
		size_t size;
		const char *text = intern_at(&w->strings, i, &size);

		note(w, buf_append(&w->record, text, size));
		end_record(w, PPROF_STRING);
	}
	compress_pending(w, Z_FINISH);
}

int pprof_write(const struct profile *p, struct buf *out)
{
	struct writer w = {.profile = p, .out = out};
	int r;

	/* A wrong stream or no memory: the constant parameters leave only the latter. */
	if (deflateInit2(&w.zip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
		    Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	buf_init(&w.message, CHUNK_SIZE + RECORD_SIZE_MAX + 64);
	buf_init(&w.record, RECORD_SIZE_MAX);
	buf_init(&w.inner, 256);
	buf_init(&w.text, (size_t)3 * PROFILE_NAME_MAX);
	w.arena = arena_new(SIZE_MAX);
	if (w.arena) {
		intern_init(&w.strings, w.arena, SIZE_MAX);
		intern_init(&w.locations, w.arena, SIZE_MAX);
		intern_init(&w.functions, w.arena, SIZE_MAX);
		intern_init(&w.mappings, w.arena, SIZE_MAX);
		put_profile(&w);
		r = w.error;
	} else {
		r = -ENOMEM;
	}
	buf_done(&w.message);
	buf_done(&w.record);
	buf_done(&w.inner);
	buf_done(&w.text);
	arena_free(w.arena);
	(void)deflateEnd(&w.zip); /* says Z_DATA_ERROR when we stopped early, which we know */
	return r;
}
