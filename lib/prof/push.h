/*
 * push.v1's PushRequest, the protobuf message that Pyroscope's SDKs, Grafana Alloy and our agent send to
 * POST /push.v1.PusherService/Push (facts: package push.v1 of the public proto files):
 *	PushRequest      { repeated RawProfileSeries series = 1 }
 *	RawProfileSeries { repeated LabelPair labels = 1; repeated RawSample samples = 2 }
 *	LabelPair        { string name = 1; string value = 2 }
 *	RawSample        { bytes raw_profile = 1 (pprof, gzip or plain); string ID = 2 }
 * ID is our window id. Labels hold __name__ (the view: process_cpu, wall, ...) and service_name.
 */
#ifndef PROF_PUSH_H
#define PROF_PUSH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"

enum {
	PUSH_LABELS_MAX = 64,
	PUSH_LABEL_NAME_MAX = 256,
	PUSH_LABEL_VALUE_MAX = 2048,
	PUSH_SAMPLES_MAX = 4096, /* of one request, over all series */
	PUSH_ID_MAX = 128,
};

struct push_label {
	const char *name;
	const char *value;
};

struct push_sample {
	const void *profile; /* points into the request's bytes */
	size_t profile_size;
	const char *id; /* "" when absent */
};

struct push_series {
	struct push_label *labels; /* sorted by name, names unique, text repaired to UTF-8 */
	size_t label_count;
	struct push_sample *samples;
	size_t sample_count;
};

struct push_request {
	struct push_series *series;
	size_t series_count;
};

/*
 * Reads hostile bytes; the result lives in the arena and points into data. 0; -EBADMSG with a static
 * one-line *why (malformed, over a limit, duplicate label); -ENOMEM.
 */
int push_read(
	const void *data, size_t size, struct arena *a, const char **why, struct push_request *ret);
/* 0 or buf's error. */
int push_write(const struct push_request *r, struct buf *out);
/* The label's value or NULL. */
const char *push_label(const struct push_series *s, const char *name);

#endif
