/*
 * A profile in memory: samples, each a stack of frames with a value per sample type and labels. The
 * one vocabulary between collectors, writers, readers and the lab. Strings, frames and stacks are
 * interned; equal samples (same stack, same labels) are merged. Names are repaired to UTF-8 when
 * they come in and escaped only by the writers (DESIGN.md section 4, "Frames").
 *
 * Order: stack[0] is the leaf, as in pprof. The kernel part, if any, comes first.
 *
 * Every index is checked by the functions that take one; a profile read from hostile bytes is as
 * safe as one that was built here.
 */
#ifndef PROF_PROFILE_H
#define PROF_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_kind {
	FRAME_NATIVE,
	FRAME_KERNEL,
	FRAME_PYTHON,
	FRAME_JAVA,
	FRAME_NODE,
	FRAME_GO,
	FRAME_OTHER, /* markers such as "[truncated: ...]" */
	FRAME_KIND_COUNT
};
const char *frame_kind_name(enum frame_kind k);                /* "native", "kernel"... */
bool frame_kind_parse(const char *name, enum frame_kind *ret); /* false: unknown */

struct frame {
	uint32_t name;   /* string ids; string 0 is "" */
	uint32_t file;   /* source file */
	uint32_t module; /* binary or kernel module, "" if none */
	uint32_t line;
	uint32_t kind; /* enum frame_kind */
	uint32_t pad;
	uint64_t address; /* in the module's own address space; 0: unknown. Not part of a name's
			     identity */
};

struct label {
	uint32_t key;
	uint32_t str; /* string id, or 0 when the label is a number */
	int64_t num;
};

struct sample_type {
	uint32_t type; /* string ids: "cpu", "nanoseconds" */
	uint32_t unit;
};

struct sample {
	const uint32_t *frames;     /* frame ids, leaf first */
	const struct label *labels; /* sorted by key id */
	const int64_t *values;      /* one per sample type */
	uint32_t frame_count;
	uint32_t label_count;
};

enum {
	PROFILE_NAME_MAX = 2048,  /* bytes of one string, longer ones are cut with "..." */
	PROFILE_DEPTH_MAX = 1024, /* frames of one stack */
	PROFILE_LABELS_MAX = 32,
	PROFILE_TYPES_MAX = 8,
};

struct profile;

/* memory_max bounds everything the profile holds. 0 or -ENOMEM. */
int profile_new(size_t memory_max, struct profile **ret);
void profile_free(struct profile *p); /* accepts NULL */
void profile_freep(struct profile **p);

/* Adders return an id >= 0, or -ENOBUFS at the limit, -ENOMEM. Strings come in as raw bytes. */
int64_t profile_string(struct profile *p, const char *s, size_t size);
int64_t profile_str(struct profile *p, const char *s);
/* f holds string ids of this profile; -EINVAL if one is out of range. An empty name becomes
 * "[unnamed]". */
int64_t profile_frame(struct profile *p, const struct frame *f);
/* Before the first sample. -EINVAL above PROFILE_TYPES_MAX. */
int64_t profile_sample_type(struct profile *p, const char *type, const char *unit);

/*
 * Adds a sample or adds its values to an equal one. Labels may come in any order. Values sum with
 * saturation at INT64_MAX. 0, -EINVAL (index, depth or count out of range), -ENOBUFS, -ENOMEM.
 */
int profile_add(struct profile *p, const uint32_t *frames, uint32_t frame_count,
	const struct label *labels, uint32_t label_count, const int64_t *values);

/* "flame.KEY=VALUE" facts (pprof comments, DESIGN.md section 4). Setting a key again replaces it.
 * 0, -EINVAL (key is empty or has a '='), -ENOBUFS (also above 1,024 facts), -ENOMEM. */
int profile_set_fact(struct profile *p, const char *key, const char *value);
int profile_set_factf(struct profile *p, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *profile_fact(const struct profile *p, const char *key); /* NULL: not set */
size_t profile_fact_count(const struct profile *p);
bool profile_fact_at(const struct profile *p, size_t i, const char **key, const char **value);

void profile_set_time(struct profile *p, int64_t start_unix_ns, int64_t duration_ns);
int64_t profile_start_ns(const struct profile *p);
int64_t profile_duration_ns(const struct profile *p);
void profile_set_period(struct profile *p, const char *type, const char *unit, int64_t period);
int64_t profile_period(const struct profile *p);
struct sample_type profile_period_type(const struct profile *p); /* ids of "" when unset */

/* Readers. Order of samples is the order of first addition. */
const char *profile_text(
	const struct profile *p, uint32_t string); /* never NULL; "" out of range */
size_t profile_string_count(const struct profile *p);
size_t profile_frame_count(const struct profile *p);
const struct frame *profile_frame_at(
	const struct profile *p, uint32_t frame); /* NULL out of range */
size_t profile_sample_count(const struct profile *p);
bool profile_sample_at(const struct profile *p, size_t i, struct sample *ret);
size_t profile_type_count(const struct profile *p);
struct sample_type profile_type_at(const struct profile *p, size_t i);
int64_t profile_total(const struct profile *p, size_t type); /* saturating sum over samples */
/* The label's text ("" if absent or a number). */
const char *profile_sample_label(const struct profile *p, const struct sample *s, const char *key);
/* Index of the sample type that exporters with one value show: the last one, as pprof tools do. */
size_t profile_default_type(const struct profile *p);

#endif
