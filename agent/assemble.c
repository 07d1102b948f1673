/* See assemble.h. */
#include "agent/assemble.h"

#include <errno.h>

#include "agent/fault.h"
#include "base/def.h"

enum { ASSEMBLE_PCS_MAX = SAMPLE_KERNEL_FRAMES_MAX + SAMPLE_USER_FRAMES_MAX };

/* Inlined functions make more frames than addresses; the marker has to fit, too. */
_Static_assert(SAMPLE_KERNEL_FRAMES_MAX < PROFILE_DEPTH_MAX - 1, "kernel frames always fit");

struct assembly {
	struct profile *profile;
	const struct assemble_input *in;
	struct assemble_totals totals;
	uint32_t frames[PROFILE_DEPTH_MAX];
	uint32_t frame_count;
	uint64_t pcs[ASSEMBLE_PCS_MAX]; /* of the record at hand, aligned */
};

static struct symbolizer_process process_of(const struct stack_record *r)
{
	return (struct symbolizer_process){.tgid = r->key.tgid,
		.start_ns = r->key.start_ns,
		.exec_id = r->key.exec_id,
		.seen_ns = r->seen_ns};
}

/* r's own array may stand at any address a reader gave it; its counts were checked. */
static void load_pcs(struct assembly *a, const struct stack_record *r)
{
	for (uint32_t i = 0; i < r->kernel_count + r->user_count; i++)
		a->pcs[i] = r->frames[i];
}

/* The first kernel frame was interrupted, the others are return addresses. */
static uint64_t kernel_address(const struct assembly *a, uint32_t i)
{
	return i == 0 || fault_keep_pc() ? a->pcs[i] : a->pcs[i] - 1;
}

static void ask_kernel(struct assembly *a)
{
	for (size_t i = 0; i < a->in->count && a->in->kernel_names; i++) {
		const struct stack_record *r = stacks_find(a->in->records, &a->in->counted[i].key);

		if (!r)
			continue;
		load_pcs(a, r);
		for (uint32_t k = 0; k < r->kernel_count; k++)
			kernel_names_want(a->in->kernel_names, kernel_address(a, k));
	}
	if (a->in->kernel_names)
		kernel_names_flush(a->in->kernel_names);
}

static bool kernel_knows(const struct assembly *a, uint32_t i, struct kernel_name *ret)
{
	return a->in->kernel_names &&
	       kernel_names_find(a->in->kernel_names, kernel_address(a, i), ret);
}

static bool kernel_knows_all(const struct assembly *a, uint32_t count)
{
	struct kernel_name name;

	for (uint32_t i = 0; i < count; i++)
		if (!kernel_knows(a, i, &name))
			return false;
	return true;
}

/*
 * All addresses at once: few requests to the helper, and at most one pass over the kernel's symbols
 * for the stacks that the kernel could not name as a whole.
 */
static void announce(struct assembly *a)
{
	struct symbolizer *s = a->in->symbolizer;

	ask_kernel(a);
	for (size_t i = 0; i < a->in->count; i++) {
		const struct stack_record *r = stacks_find(a->in->records, &a->in->counted[i].key);
		struct symbolizer_process process;

		if (!r)
			continue;
		process = process_of(r);
		load_pcs(a, r);
		if (!kernel_knows_all(a, r->kernel_count))
			symbolizer_kernel_prepare(s, a->pcs, r->kernel_count);
		symbolizer_user_prepare(s, &process, a->pcs + r->kernel_count, r->user_count,
			!(r->flags & STACK_RECORD_INTERRUPTED));
	}
	symbolizer_flush_prepare(s);
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
	case SAMPLE_END_NO_TABLE:
		return "[truncated: unwind table not built in time]";
	case SAMPLE_END_NO_MAPPING:
		return "[truncated: address in no mapping]";
	case SAMPLE_END_NO_CFI:
		return "[truncated: no unwind information]";
	case SAMPLE_END_BROKEN_CFI:
		return "[truncated: broken unwind information]";
	case SAMPLE_END_TABLE_FULL:
		return "[truncated: unwind tables full]";
	case SAMPLE_END_UNSUPPORTED:
		return "[truncated: unwind rule not supported]";
	case SAMPLE_END_BAD_CFA:
		return "[truncated: stack makes no sense]";
	case SAMPLE_END_SHORT_COPY:
		return "[truncated: deeper than the kept stack]";
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

static int put_kernel_frame(struct assembly *a, const struct kernel_name *k)
{
	struct frame f = {.kind = FRAME_KERNEL};
	int64_t name = profile_string(a->profile, k->name, k->name_size);
	int64_t module = profile_string(a->profile, k->module, k->module_size);
	int64_t id = MIN(name, module);

	if (id < 0)
		return (int)id;
	f.name = (uint32_t)name;
	f.module = (uint32_t)module;
	id = profile_frame(a->profile, &f);
	if (id < 0)
		return (int)id;
	a->frames[a->frame_count++] = (uint32_t)id;
	a->totals.kernel_frames++;
	return 0;
}

static int name_kernel_frames(struct assembly *a, uint32_t count)
{
	struct kernel_name name;
	int r = 0;

	if (!kernel_knows_all(a, count)) {
		r = symbolizer_kernel(a->in->symbolizer, a->profile, a->pcs, count, a->frames);
		a->frame_count = r < 0 ? 0 : (uint32_t)r;
		return r < 0 ? r : 0;
	}
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = kernel_knows(a, i, &name) ? put_kernel_frame(a, &name) : -EINVAL;
	return r;
}

static int name_frames(struct assembly *a, const struct stack_record *r)
{
	struct symbolizer_process process = process_of(r);
	const char *marker = assemble_marker(r->end, r->flags);
	uint32_t room;
	int n;

	load_pcs(a, r);
	n = name_kernel_frames(a, r->kernel_count);
	if (n < 0)
		return n;
	room = PROFILE_DEPTH_MAX - 1 - a->frame_count;
	n = symbolizer_user(a->in->symbolizer, a->profile, &process, a->pcs + r->kernel_count,
		r->user_count, !(r->flags & STACK_RECORD_INTERRUPTED), room,
		a->frames + a->frame_count);
	if (n < 0)
		return n;
	if ((uint32_t)n > room)
		marker = assemble_marker(SAMPLE_END_DEPTH, 0);
	a->frame_count += MIN((uint32_t)n, room);
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

/* A text label, unless it is "". */
static int add_text(
	struct assembly *a, struct label *labels, uint32_t *n, const char *key, const char *text)
{
	int r = *text ? add_label(a, &labels[*n], key, text, SIZE_MAX, 0) : 0;

	*n += r == 0 && *text;
	return r;
}

static int add_process(
	struct assembly *a, const struct stack_key *key, struct label *labels, uint32_t *n)
{
	struct process process;
	int r = 0;

	if (!a->in->processes || !processes_find(a->in->processes, key, &process))
		return 0;
	for (size_t i = 0; r == 0 && i < process.label_count; i++)
		r = add_text(a, labels, n, process.labels[i].key, process.labels[i].text);
	return r;
}

static int add_sample(struct assembly *a, const struct stack_record *r, const uint64_t values[2])
{
	struct label labels[4 + PROCESS_LABELS_MAX];
	uint32_t n = 0;
	int e = add_label(a, &labels[n++], "pid", NULL, 0, r->key.tgid);

	if (e == 0)
		e = add_label(a, &labels[n++], "comm", r->process_comm, sizeof(r->process_comm), 0);
	if (e == 0)
		e = add_label(a, &labels[n++], "thread", r->thread_comm, sizeof(r->thread_comm), 0);
	if (e == 0 && a->in->with_tid)
		e = add_label(a, &labels[n++], "tid", NULL, 0, r->key.tid);
	if (e == 0)
		e = add_process(a, &r->key, labels, &n);
	if (e < 0)
		return e;
	return profile_add(a->profile, a->frames, a->frame_count, labels, n,
		(const int64_t[]){(int64_t)values[0], (int64_t)values[1]});
}

static int add_counted(struct assembly *a, const struct collect_stack *c)
{
	const struct stack_record *r = stacks_find(a->in->records, &c->key);
	struct stack_record nameless = {.key = c->key};
	uint64_t values[2] = {c->value.samples, c->value.weight_ns};
	int error;

	a->frame_count = 0;
	if (r) {
		error = name_frames(a, r);
	} else {
		/* Its time is known, its frames are not: never silent. */
		r = &nameless;
		a->totals.stacks_missing++;
		error = add_marker(a, "[stack lost]");
	}
	if (error == 0)
		error = fault_swap(a->profile, a->frames, a->frame_count);
	if (error < 0)
		return error;
	fault_drop(a->profile, a->frames, a->frame_count, &values[0], &values[1]);
	a->totals.samples += values[0];
	a->totals.weight_ns += values[1];
	return add_sample(a, r, values);
}

const char *assemble_lost_marker(enum sample_loss loss)
{
	switch (loss) {
	case SAMPLE_LOSS_RING_FULL:
		return "[lost: ring full]";
	case SAMPLE_LOSS_MAP_FULL:
		return "[lost: too many stacks]";
	case SAMPLE_LOSS_MAP_BUSY:
		return "[lost: stacks busy]";
	case SAMPLE_LOSS_LEDGER_FULL: /* the stack was counted */
	case SAMPLE_LOSS_NESTED:      /* the next sample has its weight */
	case SAMPLE_LOSS_COUNT:
		return NULL;
	}
	return NULL;
}

static int add_lost(struct assembly *a, enum sample_loss loss)
{
	const struct sample_count *lost = &a->in->losses[loss];
	const char *marker = assemble_lost_marker(loss);
	int r;

	if (!marker || lost->samples == 0)
		return 0;
	a->frame_count = 0;
	r = add_marker(a, marker);
	if (r < 0)
		return r;
	a->totals.samples += lost->samples;
	a->totals.weight_ns += lost->weight_ns;
	return profile_add(a->profile, a->frames, a->frame_count, NULL, 0,
		(const int64_t[]){(int64_t)lost->samples, (int64_t)lost->weight_ns});
}

int assemble_profile(
	struct profile *p, const struct assemble_input *in, struct assemble_totals *ret)
{
	struct assembly a = {.profile = p, .in = in};
	int64_t id = profile_sample_type(p, "samples", "count");

	if (id >= 0)
		id = profile_sample_type(p, "cpu", "nanoseconds");
	if (id < 0)
		return (int)id;
	announce(&a);
	for (size_t i = 0; i < in->count; i++) {
		int r = add_counted(&a, &in->counted[i]);

		if (r < 0)
			return r;
		fault_slow();
	}
	for (int i = 0; i < SAMPLE_LOSS_COUNT && in->losses; i++) {
		int r = add_lost(&a, (enum sample_loss)i);

		if (r < 0)
			return r;
	}
	*ret = a.totals;
	return 0;
}
