/* See stacks.h. Profiles are small (hundreds of distinct stacks), so every question is one pass. */
#include "lab/stacks.h"

#include <errno.h>

#include "base/def.h"
#include "base/str.h"

int stacks_open(const struct profile *p, uint32_t pid, struct stacks *ret)
{
	struct stacks s = {.profile = p, .pid = pid};
	bool found = false;

	for (size_t i = 0; i < profile_type_count(p); i++) {
		struct sample_type t = profile_type_at(p, i);

		if (strcmp(profile_text(p, t.unit), "nanoseconds") == 0) {
			s.weight_type = i;
			found = true;
		} else if (strcmp(profile_text(p, t.unit), "count") == 0) {
			s.count_type = i;
			s.has_count = true;
		}
	}
	if (!found)
		return -ENODATA;
	*ret = s;
	return 0;
}

bool stacks_name_is(const char *frame, const char *name)
{
	size_t n = strlen(name);

	return strncmp(frame, name, n) == 0 && (frame[n] == 0 || frame[n] == '(');
}

/* The process of a sample, from a number or a text label. */
static bool stacks_is_late(const struct stacks *s, const struct sample *sample)
{
	for (uint32_t i = 0; i < sample->frame_count; i++) {
		const struct frame *f = profile_frame_at(s->profile, sample->frames[i]);

		if (f && strcmp(profile_text(s->profile, f->name),
				 "[truncated: unwind table not built in time]") == 0)
			return true;
	}
	return false;
}

bool stacks_is_ours(const struct stacks *s, const struct sample *sample)
{
	if (s->without_late && stacks_is_late(s, sample))
		return false;
	if (!s->pid && !s->comm)
		return true;
	for (uint32_t i = 0; i < sample->label_count; i++) {
		const struct label *l = &sample->labels[i];
		uint64_t v;

		if (s->comm && strcmp(profile_text(s->profile, l->key), "comm") == 0)
			return strcmp(profile_text(s->profile, l->str), s->comm) == 0;
		if (s->comm)
			continue;
		if (strcmp(profile_text(s->profile, l->key), "pid") != 0)
			continue;
		if (!l->str)
			return l->num == (int64_t)s->pid;
		return str_to_u64(profile_text(s->profile, l->str), 0, UINT32_MAX, &v) == 0 &&
		       v == s->pid;
	}
	return false;
}

const char *stacks_label(const struct stacks *s, const struct sample *sample, const char *key)
{
	for (uint32_t i = 0; i < sample->label_count; i++) {
		const struct label *l = &sample->labels[i];

		if (l->str && strcmp(profile_text(s->profile, l->key), key) == 0)
			return profile_text(s->profile, l->str);
	}
	return "";
}

static void stacks_count(
	const struct stacks *s, const struct sample *sample, double hz, struct stacks_sum *sum)
{
	double w = (double)sample->values[s->weight_type];

	sum->weight_ns += w;
	sum->count += s->has_count ? (double)sample->values[s->count_type]
				   : w / (double)NSEC_PER_SEC * hz;
}

const char *stacks_frame_name(const struct stacks *s, const struct sample *sample, uint32_t i)
{
	const struct frame *f = profile_frame_at(s->profile, sample->frames[i]);

	return f && f->kind != FRAME_KERNEL ? profile_text(s->profile, f->name) : "";
}

const char *stacks_frame_module(const struct stacks *s, const struct sample *sample, uint32_t i)
{
	const struct frame *f = profile_frame_at(s->profile, sample->frames[i]);
	const char *path = f && f->kind != FRAME_KERNEL ? profile_text(s->profile, f->module) : "";
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

uint32_t stacks_find(const struct stacks *s, const struct sample *sample, const char *name)
{
	uint32_t at = 0;

	while (at < sample->frame_count && !stacks_name_is(stacks_frame_name(s, sample, at), name))
		at++;
	return at;
}

static bool stacks_may_stand_between(const struct stacks_chain *c, const char *name)
{
	if (c->between == STACKS_FOREIGN)
		for (size_t i = 0; i < c->foreign_count; i++)
			if (str_has_prefix(name, c->foreign[i]))
				return true;
	return c->between == STACKS_ANYTHING;
}

bool stacks_chain_at(const struct stacks *s, const struct sample *sample, uint32_t i,
	const struct stacks_chain *c)
{
	if (i >= sample->frame_count || !stacks_name_is(stacks_frame_name(s, sample, i), c->name))
		return false;
	for (size_t k = 0; k < c->caller_count; k++) {
		uint32_t at = i + 1;

		while (at < sample->frame_count &&
			!stacks_name_is(stacks_frame_name(s, sample, at), c->callers[k]) &&
			stacks_may_stand_between(c, stacks_frame_name(s, sample, at)))
			at++;
		if (at < sample->frame_count &&
			stacks_name_is(stacks_frame_name(s, sample, at), c->callers[k]))
			i = at;
		else if (!c->inlined || !c->inlined[k])
			return false;
	}
	return true;
}

struct stacks_sum stacks_total(const struct stacks *s, double hz)
{
	struct stacks_sum sum = {0};
	struct sample sample;

	for (size_t i = 0; profile_sample_at(s->profile, i, &sample); i++)
		if (stacks_is_ours(s, &sample))
			stacks_count(s, &sample, hz, &sum);
	return sum;
}

struct stacks_sum stacks_under(const struct stacks *s, const struct stacks_chain *c, double hz)
{
	struct stacks_sum sum = {0};
	struct sample sample;

	for (size_t i = 0; profile_sample_at(s->profile, i, &sample); i++) {
		bool found = false;

		if (!stacks_is_ours(s, &sample))
			continue;
		for (uint32_t k = 0; k < sample.frame_count && !found; k++)
			found = stacks_chain_at(s, &sample, k, c);
		if (found)
			stacks_count(s, &sample, hz, &sum);
	}
	return sum;
}

struct stacks_sum stacks_astray(const struct stacks *s, const char *name,
	const struct stacks_chain *chains, size_t chain_count, double hz)
{
	struct stacks_sum sum = {0};
	struct sample sample;

	for (size_t i = 0; profile_sample_at(s->profile, i, &sample); i++) {
		bool right = false;
		uint32_t at;

		if (!stacks_is_ours(s, &sample))
			continue;
		at = stacks_find(s, &sample, name);
		if (at == sample.frame_count)
			continue;
		for (size_t k = 0; k < chain_count && !right; k++)
			right = stacks_chain_at(s, &sample, at, &chains[k]);
		if (!right)
			stacks_count(s, &sample, hz, &sum);
	}
	return sum;
}

struct stacks_sum stacks_above(const struct stacks *s, const char *name, double hz)
{
	struct stacks_sum sum = {0};
	struct sample sample;

	for (size_t i = 0; profile_sample_at(s->profile, i, &sample); i++) {
		uint32_t at;

		if (!stacks_is_ours(s, &sample))
			continue;
		at = stacks_find(s, &sample, name);
		if (at > 0 && at < sample.frame_count)
			stacks_count(s, &sample, hz, &sum);
	}
	return sum;
}

struct stacks_sum stacks_unnamed(const struct stacks *s, const char *module, double hz)
{
	struct stacks_sum sum = {0};
	struct sample sample;

	for (size_t i = 0; profile_sample_at(s->profile, i, &sample); i++) {
		bool unnamed = false;

		if (!stacks_is_ours(s, &sample))
			continue;
		for (uint32_t k = 0; k < sample.frame_count && !unnamed; k++) {
			unnamed = strcmp(stacks_frame_module(s, &sample, k), module) == 0 &&
				  stacks_frame_name(s, &sample, k)[0] == '[';
		}
		if (unnamed)
			stacks_count(s, &sample, hz, &sum);
	}
	return sum;
}
