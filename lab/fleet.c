/* See fleet.h. The windows come from the agent under test: every length is checked. */
#include "lab/fleet.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/def.h"
#include "lab/stacks.h"
#include "prof/pprof.h"
#include "prof/push.h"

enum { HEADER_SIZE = 24, SIZE_OFFSET = 8 };

static const uint64_t fleet_number_max = 1ULL << 53;
static const size_t fleet_arena_max = 64U << 20, fleet_profile_max = 128U << 20;

static void fleet_read(const struct json_at *root, struct fleet_result *f)
{
	const struct {
		const char *name;
		uint64_t *value;
	} numbers[] = {
		{"bpf_before", &f->bpf_before},
		{"bpf_dormant_max", &f->bpf_dormant_max},
		{"bpf_sampling_max", &f->bpf_sampling_max},
		{"bpf_after", &f->bpf_after},
		{"dormant_ns", &f->dormant_ns},
		{"dormant_cpu_ns", &f->dormant_cpu_ns},
		{"dormant_memory_bytes", &f->dormant_memory},
		{"commands", &f->commands},
		{"commands_done", &f->commands_done},
		{"backend_kills", &f->kills},
		{"windows_resent", &f->resent},
		{"spool_windows_max", &f->spool_max},
		{"stored_profiles", &f->stored},
		{"duplicates", &f->duplicates},
		{"verify_faults", &f->verify_faults},
		{"spool_limit", &f->spool_limit},
		{"windows_made", &f->windows_made},
		{"windows_dropped", &f->dropped},
		{"windows_dropped_early", &f->dropped_early},
		{"windows_dropped_told", &f->dropped_told},
		{"pushes_refused", &f->refused},
		{"pushes_cut", &f->cut},
		{"pushes_early", &f->early},
		{"ingested_profiles", &f->ingested},
		{"ingest_cpu_ns", &f->ingest_cpu_ns},
	};
	struct json_at at, item;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		at = json_need(root, numbers[i].name);
		*numbers[i].value = json_u64(&at, 0, 0, fleet_number_max);
	}
	at = json_need(root, "error");
	f->error = json_text(&at, "", 0, 512);
	json_exit(root, "agent_exit", f->agent_exit);
	json_exit(root, "backend_exit", f->backend_exit);
	at = json_need(root, "memory_bytes");
	f->memory_count = json_array(&at, 0, FLEET_CYCLES_MAX);
	for (size_t i = 0; i < f->memory_count; i++) {
		item = json_item(&at, i);
		f->memory[i] = json_u64(&item, 0, 0, fleet_number_max);
	}
}

int fleet_parse(struct fleet_result *f, const char *file, const void *data, size_t size)
{
	static const char *const schemas[] = {"flamelab-fleet/1", NULL};
	struct json_at root, at;
	int r;

	*f = (struct fleet_result){0};
	r = json_parse(&f->doc, file, data, size);
	if (r < 0)
		return r;
	root = json_root(&f->doc);
	if (!json_open_object(&root))
		return -EBADMSG;
	at = json_need(&root, "schema");
	(void)json_choice(&at, 0, schemas); /* only the failure counts */
	fleet_read(&root, f);
	return json_failed(&f->doc) ? -EBADMSG : 0;
}

void fleet_done(struct fleet_result *f)
{
	json_done(&f->doc);
	*f = (struct fleet_result){0};
}

/* --- windows */

static int fleet_add_profile(
	const struct push_sample *s, const char **why, struct fleet_windows *ret)
{
	_cleanup_(profile_freep) struct profile *p = NULL;
	const char *fact;
	struct stacks_sum sum;
	struct stacks st;
	int r = pprof_read(s->profile, s->profile_size, fleet_profile_max, why, &p);

	if (r < 0)
		return r;
	if (stacks_open(p, 0, &st) < 0) {
		*why = "a profile without nanoseconds";
		return -EBADMSG;
	}
	fact = profile_fact(p, "frequency_real_hz");
	if (fact)
		ret->frequency_hz = strtod(fact, NULL);
	sum = stacks_total(&st, ret->frequency_hz);
	ret->weight_ns += sum.weight_ns;
	ret->samples += sum.count;
	return 0;
}

static int fleet_add_window(const void *data, size_t size, const char *service, struct arena *a,
	const char **why, struct fleet_windows *ret)
{
	struct push_request q;
	int r = push_read(data, size, a, why, &q);

	for (size_t i = 0; r == 0 && i < q.series_count; i++) {
		const struct push_series *s = &q.series[i];
		const char *name = push_label(s, "service_name");

		ret->profiles += s->sample_count;
		if (!name || strcmp(name, service) != 0)
			continue;
		for (size_t k = 0; r == 0 && k < s->sample_count; k++)
			r = fleet_add_profile(&s->samples[k], why, ret);
	}
	ret->windows++;
	return r;
}

int fleet_windows_read(const void *data, size_t size, const char *service, const char **why,
	struct fleet_windows *ret)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(fleet_arena_max);
	struct fleet_windows w = {0};
	const unsigned char *at = data;
	int r = a ? 0 : -ENOMEM;

	*why = "no memory";
	while (r == 0 && size > 0) {
		uint64_t payload = 0;

		for (size_t i = 0; size >= HEADER_SIZE && i < 8; i++)
			payload |= (uint64_t)at[SIZE_OFFSET + i] << (8 * i);
		if (size < HEADER_SIZE || memcmp(at, "FLSPOOL1", 8) != 0 ||
			payload > size - HEADER_SIZE) {
			*why = "not a row of spool files";
			return -EBADMSG;
		}
		r = fleet_add_window(at + HEADER_SIZE, (size_t)payload, service, a, why, &w);
		arena_reset(a);
		at += HEADER_SIZE + payload;
		size -= HEADER_SIZE + (size_t)payload;
	}
	if (r == 0)
		*ret = w;
	return r;
}
