/* See assemble.h. */
#include "agent/assemble.h"

#include <errno.h>

#include "agent/fault.h"
#include "base/def.h"

enum { ASSEMBLE_FRAMES_MAX = SAMPLE_KERNEL_FRAMES_MAX + SAMPLE_USER_FRAMES_MAX + 1 };

struct assembly {
	struct profile *profile;
	struct symbolizer *symbolizer;
	bool with_tid;
	uint32_t frames[ASSEMBLE_FRAMES_MAX];
	uint32_t frame_count;
	uint64_t pcs[ASSEMBLE_FRAMES_MAX]; /* of the record at hand, aligned */
};

static struct symbolizer_process process_of(const struct stack_record *r)
{
	return (struct symbolizer_process){
		.tgid = r->key.tgid, .start_ns = r->key.start_ns, .exec_id = r->key.exec_id};
}

/* r's own array may stand at any address a reader gave it; its counts were checked. */
static void load_pcs(struct assembly *a, const struct stack_record *r)
{
	for (uint32_t i = 0; i < r->kernel_count + r->user_count; i++)
		a->pcs[i] = r->frames[i];
}

/* All addresses at once: one pass over the kernel's symbols and few requests to the helper. */
static void announce(struct assembly *a, const struct stacks *records,
	const struct collect_stack *counted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct stack_record *r = stacks_find(records, &counted[i].key);
		struct symbolizer_process process;

		if (!r)
			continue;
		process = process_of(r);
		load_pcs(a, r);
		symbolizer_kernel_prepare(a->symbolizer, a->pcs, r->kernel_count);
		symbolizer_user_prepare(a->symbolizer, &process, a->pcs + r->kernel_count,
			r->user_count, !(r->flags & STACK_RECORD_INTERRUPTED));
	}
	symbolizer_flush_prepare(a->symbolizer);
}

const char *assemble_marker(uint32_t end, uint32_t flags)
{
	switch (end) {
	case SAMPLE_END_ROOT:
		return NULL;
	case SAMPLE_END_NO_FP:
		return "[truncated: no frame pointer]";
	case SAMPLE_END_UNREADABLE:
		return "[truncated: stack not readable]";
	case SAMPLE_END_DEPTH:
		return "[truncated: too deep]";
	case SAMPLE_END_NO_USER:
		/* A kernel thread's stack is complete without a user part. */
		return flags & STACK_RECORD_KTHREAD ? NULL : "[truncated: no user registers]";
	default:
		return "[truncated]";
	}
}

static int add_marker(struct assembly *a, const char *name)
{
	struct frame f = {.kind = FRAME_OTHER};
	int64_t id = profile_str(a->profile, name);

	if (id < 0)
		return (int)id;
	f.name = (uint32_t)id;
	id = profile_frame(a->profile, &f);
	if (id < 0)
		return (int)id;
	a->frames[a->frame_count++] = (uint32_t)id;
	return 0;
}

static int name_frames(struct assembly *a, const struct stack_record *r)
{
	struct symbolizer_process process = process_of(r);
	const char *marker = assemble_marker(r->end, r->flags);
	int n;

	load_pcs(a, r);
	n = symbolizer_kernel(a->symbolizer, a->profile, a->pcs, r->kernel_count, a->frames);
	if (n < 0)
		return n;
	a->frame_count = (uint32_t)n;
	n = symbolizer_user(a->symbolizer, a->profile, &process, a->pcs + r->kernel_count,
		r->user_count, !(r->flags & STACK_RECORD_INTERRUPTED), a->frames + a->frame_count);
	if (n < 0)
		return n;
	a->frame_count += (uint32_t)n;
	return marker ? add_marker(a, marker) : 0;
}

static int add_label(struct assembly *a, struct label *l, const char *key, const char *text,
	size_t size, int64_t num)
{
	int64_t id = profile_str(a->profile, key);

	if (id < 0)
		return (int)id;
	*l = (struct label){.key = (uint32_t)id, .num = num};
	if (!text)
		return 0;
	id = profile_string(a->profile, text, strnlen(text, size));
	if (id < 0)
		return (int)id;
	l->str = (uint32_t)id;
	return 0;
}

static int add_sample(struct assembly *a, const struct stack_record *r, const uint64_t values[2])
{
	struct label labels[4];
	uint32_t n = 0;
	int r0 = add_label(a, &labels[n++], "pid", NULL, 0, r->key.tgid);

	if (r0 == 0)
		r0 = add_label(
			a, &labels[n++], "comm", r->process_comm, sizeof(r->process_comm), 0);
	if (r0 == 0)
		r0 = add_label(
			a, &labels[n++], "thread", r->thread_comm, sizeof(r->thread_comm), 0);
	if (r0 == 0 && a->with_tid)
		r0 = add_label(a, &labels[n++], "tid", NULL, 0, r->key.tid);
	if (r0 < 0)
		return r0;
	return profile_add(a->profile, a->frames, a->frame_count, labels, n,
		(const int64_t[]){(int64_t)values[0], (int64_t)values[1]});
}

static int add_counted(struct assembly *a, const struct stack_record *r,
	const struct collect_stack *c, struct assemble_totals *totals)
{
	struct stack_record nameless = {.key = c->key};
	uint64_t values[2] = {c->value.samples, c->value.weight_ns};
	int error;

	a->frame_count = 0;
	if (r) {
		error = name_frames(a, r);
	} else {
		/* Its time is known, its frames are not: never silent. */
		r = &nameless;
		totals->stacks_missing++;
		error = add_marker(a, "[stack lost]");
	}
	if (error == 0)
		error = fault_swap(a->profile, a->frames, a->frame_count);
	if (error < 0)
		return error;
	fault_drop(a->profile, a->frames, a->frame_count, &values[0], &values[1]);
	totals->samples += values[0];
	totals->weight_ns += values[1];
	return add_sample(a, r, values);
}

int assemble_profile(struct profile *p, struct symbolizer *symbolizer, const struct stacks *records,
	const struct collect_stack *counted, size_t count, bool with_tid,
	struct assemble_totals *ret)
{
	struct assembly a = {.profile = p, .symbolizer = symbolizer, .with_tid = with_tid};
	struct assemble_totals totals = {0};
	int64_t id = profile_sample_type(p, "samples", "count");

	if (id >= 0)
		id = profile_sample_type(p, "cpu", "nanoseconds");
	if (id < 0)
		return (int)id;
	announce(&a, records, counted, count);
	for (size_t i = 0; i < count; i++) {
		int r = add_counted(
			&a, stacks_find(records, &counted[i].key), &counted[i], &totals);

		if (r < 0)
			return r;
		fault_slow();
	}
	*ret = totals;
	return 0;
}
