/*
 * Do our unwinder and libdw see the same stacks? A program runs under ptrace and is stopped at seeded
 * pseudo-random moments; each thread's registers and stack are recorded, some are then single-stepped and
 * recorded at every instruction; both walkers go over the recorded bytes; their pcs are compared.
 *
 *	unwind_differential [--name N] [--seconds S] [--samples N] [--steps N] [--seed N] [--save F] -- PROGRAM...
 *	unwind_differential [--name N] --replay F
 *
 * `--fault` makes our tables wrong in one rule of 4, to see that it is noticed.
 *
 * COUNTED are frames: the longer of the two stacks. Those up to the first difference agree, all behind it do
 * not, and belong to its class: who ended and why, or that callers differ. Exit 0: at least 99.9 % agree, not
 * counting `--allow CLASS` (repeatable; a prefix), which is printed all the same and may be a twentieth of all
 * frames, or one of N by `--apart N`. 1: they do not. 2: nothing could be recorded.
 *
 * Stacks whose frames agree are listed too when they end before the thread's first frame for one walker or for
 * both, for what that hides behind an agreement.
 */
#include "tests/e2e/unwind_differential.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sys/uio.h>

#include "base/def.h"
#include "tests/e2e/unwind_differential_trace.h"

enum {
	CLASSES_MAX = 64,
	SHOWN_MAX = 20,
	ALLOWED_MAX = 16,
	CLASS_SIZE = 128,
	PCS_SHIFT = 18,
	APART_MAX_PART = 20
};

struct class
{
	char name[CLASS_SIZE];
	uint64_t samples, frames;
};

struct tally {
	const char *name;
	const char *allowed[ALLOWED_MAX];
	size_t allowed_count;
	uint64_t apart_part;
	uint64_t samples, frames, agreed;
	uint64_t both_complete, both_cut; /* of stacks that agree in all frames */
	uint64_t callers, same_file;      /* callers in the mapping of their callee */
	uint64_t *pcs;                    /* a hash set of the frames' addresses */
	uint64_t pc_count;
	struct class classes[CLASSES_MAX];
	size_t class_count;
	uint64_t shown[SHOWN_MAX]; /* hashes of what was printed */
	size_t shown_count;
};

/* The recorded page that holds address, fetched while the process is there; NULL: not to be had. */
static const struct diff_page *page_of(struct diff_sample *s, uint64_t address)
{
	uint64_t start = address & ~(DIFF_PAGE - 1ULL);

	for (size_t i = 0; i < s->page_count; i++)
		if (s->pages[i].address == start)
			return &s->pages[i];
	if (s->live == 0 || s->page_count == DIFF_PAGES_MAX)
		return NULL;
	struct diff_page *p = &s->pages[s->page_count];
	struct iovec to = {p->bytes, DIFF_PAGE}, from = {(void *)start, DIFF_PAGE};

	if (process_vm_readv(s->live, &to, 1, &from, 1, 0) != DIFF_PAGE)
		return NULL;
	p->address = start;
	s->page_count++;
	return p;
}

int diff_read_stack(struct diff_sample *s, void *dst, size_t size, uint64_t address)
{
	uint64_t into = address - s->stack_start;

	if (address >= s->stack_start && into < s->stack_size && s->stack_size - into >= size) {
		memcpy(dst, s->stack + into, size);
		return 0;
	}
	while (size > 0) {
		const struct diff_page *p = page_of(s, address);
		size_t at = address % DIFF_PAGE, part = MIN(size, DIFF_PAGE - at);

		if (!p)
			return -1;
		memcpy(dst, p->bytes + at, part);
		dst = (uint8_t *)dst + part;
		address += part;
		size -= part;
	}
	return 0;
}

/* Its name; "generated code" or "no mapping". */
static const char *file_of(const struct diff_space *space, uint64_t pc)
{
	const struct maps_region *r = maps_find(&space->maps, pc);
	const char *path = r ? maps_path(&space->maps, r) : "";
	const char *slash = strrchr(path, '/');

	if (!r)
		return "no mapping";
	return slash ? slash + 1 : *path ? path : "generated code";
}

/* file+offset, in one of four static buffers */
static const char *where(const struct diff_space *space, uint64_t pc)
{
	static char texts[4][256];
	static unsigned next;
	char *text = texts[next++ % ARRAY_SIZE(texts)];
	const struct maps_region *r = maps_find(&space->maps, pc);

	snprintf(text, sizeof(texts[0]), "%s+%#" PRIx64, file_of(space, pc),
		r ? pc - r->start + r->offset : pc);
	return text;
}

static struct class *class_of(struct tally *t, const char *name)
{
	for (size_t i = 0; i < t->class_count; i++)
		if (strcmp(t->classes[i].name, name) == 0)
			return &t->classes[i];
	if (t->class_count == CLASSES_MAX)
		return &t->classes[CLASSES_MAX - 1];
	struct class *c = &t->classes[t->class_count++];

	snprintf(c->name, sizeof(c->name), "%s", name);
	return c;
}

static void show(struct tally *t, const struct diff_space *space, const char *class,
	const struct diff_sample *s, const struct diff_walk *ours, const struct diff_walk *libdw,
	size_t common)
{
	uint64_t at = ours->pcs[common - 1];
	const struct maps_region *r = maps_find(&space->maps, at);
	uint64_t hash = r ? at - r->start + r->offset + r->inode : 1;

	for (const char *c = class; *c; c++)
		hash = hash * 31 + (uint8_t)*c;

	for (size_t i = 0; i < t->shown_count; i++)
		if (t->shown[i] == hash)
			return;
	if (t->shown_count == SHOWN_MAX)
		return;
	t->shown[t->shown_count++] = hash;
	printf("  %s: %s: frame %zu %s%s: ours %s (%zu), libdw %s (%zu)\n", t->name, class,
		common - 1, where(space, at), s->orig_ax >= 0 ? " in a system call" : "",
		common < ours->count ? where(space, ours->pcs[common]) : ours->end, ours->count,
		common < libdw->count ? where(space, libdw->pcs[common]) : libdw->end,
		libdw->count);
}

/* How many different addresses were walked from; stops counting when the set is nearly full. */
static void note_pc(struct tally *t, uint64_t pc)
{
	size_t at = (pc * 0x9e3779b97f4a7c15ULL) >> (64 - PCS_SHIFT);

	if (!t->pcs)
		t->pcs = calloc(1UL << PCS_SHIFT, sizeof(*t->pcs));
	if (!t->pcs || t->pc_count > (1UL << PCS_SHIFT) / 4 * 3)
		return;
	while (t->pcs[at] != 0 && t->pcs[at] != pc)
		at = (at + 1) & ((1UL << PCS_SHIFT) - 1);
	t->pc_count += t->pcs[at] == 0;
	t->pcs[at] = pc;
}

static void compare(struct tally *t, const struct diff_space *space, struct diff_sample *s)
{
	static struct diff_walk ours, libdw;
	char class[CLASS_SIZE];
	const char *file;
	size_t common = 0, all;

	diff_ours_walk(s, &ours);
	diff_libdw_walk(s, &libdw);
	all = MAX(ours.count, libdw.count);
	for (size_t i = 0; i < ours.count; i++)
		note_pc(t, ours.pcs[i]);
	for (size_t i = 1; i < ours.count; i++)
		t->same_file += maps_find(&space->maps, ours.pcs[i]) ==
				maps_find(&space->maps, ours.pcs[i - 1]);
	t->callers += ours.count - 1;
	while (common < MIN(ours.count, libdw.count) && ours.pcs[common] == libdw.pcs[common])
		common++;
	file = file_of(space, ours.pcs[common > 0 ? common - 1 : 0]);
	t->samples++;
	t->frames += all;
	t->agreed += common;
	if (common == all) {
		t->both_complete += ours.is_complete && libdw.is_complete;
		t->both_cut += !ours.is_complete && !libdw.is_complete;
		if (ours.is_complete && libdw.is_complete)
			return;
		snprintf(class, sizeof(class), "same frames, ours %s, libdw %s, in %s", ours.end,
			libdw.end, file);
	} else if (common == 0)
		snprintf(class, sizeof(class), "different first frames");
	else if (common == libdw.count)
		snprintf(class, sizeof(class), "libdw ended (%s) in %s, ours went on to %s",
			libdw.end, file, ours.is_complete ? "the first frame" : ours.end);
	else if (common == ours.count && !maps_find(&space->maps, libdw.pcs[common]))
		snprintf(class, sizeof(class),
			"libdw alone went on to no code, ours ended (%s) in %s", ours.end, file);
	else if (common == ours.count)
		snprintf(class, sizeof(class), "ours ended (%s) in %s, libdw went on%s", ours.end,
			file, libdw.is_complete ? " to a first frame" : "");
	else if (ours.is_complete && !maps_find(&space->maps, libdw.pcs[common]))
		snprintf(class, sizeof(class),
			"libdw alone left code, ours reached the first frame, in %s", file);
	else
		snprintf(class, sizeof(class), "different callers in %s, ours %s, libdw %s", file,
			ours.end, libdw.end);
	struct class *c = class_of(t, class);

	c->samples++;
	c->frames += all - common;
	if (common > 0)
		show(t, space, class, s, &ours, &libdw, common);
}

static bool is_allowed(const struct tally *t, const struct class *c)
{
	for (size_t i = 0; i < t->allowed_count; i++)
		if (strncmp(c->name, t->allowed[i], strlen(t->allowed[i])) == 0)
			return true;
	return false;
}

static int finish(struct tally *t)
{
	uint64_t apart = 0;

	for (size_t i = 0; i < t->class_count; i++) {
		const struct class *c = &t->classes[i];

		apart += is_allowed(t, c) ? c->frames : 0;
		if (c->frames == 0)
			printf("  %s: %" PRIu64 " stacks agree and end early: %s\n", t->name,
				c->samples, c->name);
		else
			printf("  %s: %" PRIu64 " frames of %" PRIu64 " stacks %s: %s\n", t->name,
				c->frames, c->samples, is_allowed(t, c) ? "apart" : "differ",
				c->name);
	}
	uint64_t judged = t->frames - apart;

	printf("%s: %" PRIu64 " stacks, %" PRIu64 " frames, %" PRIu64 " agree, %" PRIu64
	       " differ (%.3f %% agree), %" PRIu64 " apart; %" PRIu64
	       " addresses; whole stacks: %" PRIu64 " complete, %" PRIu64 " cut for both\n",
		t->name, t->samples, t->frames, t->agreed, judged - t->agreed,
		judged ? 100.0 * (double)t->agreed / (double)judged : 0, apart, t->pc_count,
		t->both_complete, t->both_cut);
	printf("callers in their callee's mapping: %.1f %%\n",
		t->callers ? 100.0 * (double)t->same_file / (double)t->callers : 0);
	diff_ours_print(stdout);
	if (t->samples == 0)
		return 2;
	if (apart * t->apart_part > t->frames)
		return 1;
	return 1000 * (judged - t->agreed) <= judged ? 0 : 1;
}

static int set_space(const struct diff_space *space)
{
	int r = diff_ours_space(space);

	return r < 0 ? r : diff_libdw_space(space);
}

static int replay(struct tally *t, const char *path)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "rb");
	static struct diff_sample s;
	struct diff_space space = {.vdso_fd = -1};
	int r = f ? 1 : -errno;

	maps_init(&space.maps);
	while (r > 0) {
		r = diff_file_get(f, &space, &s);
		if (r == 'm')
			r = set_space(&space) < 0 ? -EBADMSG : r;
		else if (r == 's' && space.text)
			compare(t, &space, &s);
	}
	if (r < 0)
		fprintf(stderr, "unwind_differential: %s: %s\n", path, strerror(-r));
	return r < 0 ? 2 : finish(t);
}

struct live {
	struct tally *t;
	FILE *save; /* or NULL */
};

static int take_space(void *data, const struct diff_space *space)
{
	const struct live *l = data;
	int r = l->save ? diff_file_put_space(l->save, space) : 0;

	return r < 0 ? r : set_space(space);
}

static int take_sample(void *data, const struct diff_space *space, struct diff_sample *s)
{
	const struct live *l = data;

	compare(l->t, space, s);
	return l->save ? diff_file_put_sample(l->save, s) : 0;
}

static int run(struct tally *t, const struct trace_options *o, const char *save)
{
	struct live l = {.t = t, .save = save ? fopen(save, "wb") : NULL};
	int r = save && !l.save ? -errno : trace_run(o, take_space, take_sample, &l);

	if (l.save && fclose(l.save) != 0 && r == 0)
		r = -errno;
	if (r < 0)
		fprintf(stderr, "unwind_differential: %s: %s\n", t->name, strerror(-r));
	return r < 0 ? 2 : finish(t);
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {{"name", 1, NULL, 'n'},
		{"seconds", 1, NULL, 't'}, {"samples", 1, NULL, 'c'}, {"steps", 1, NULL, 's'},
		{"seed", 1, NULL, 'r'}, {"save", 1, NULL, 'o'}, {"replay", 1, NULL, 'i'},
		{"allow", 1, NULL, 'a'}, {"apart", 1, NULL, 'p'}, {"fault", 0, NULL, 'f'}, {}};
	struct trace_options o = {.seconds = 3, .samples = 3000, .steps = 24, .seed = 1};
	static struct tally t = {.name = "differential", .apart_part = APART_MAX_PART};
	const char *save = NULL, *from = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "+", long_options, NULL)) != -1) {
		switch (c) {
		case 'n':
			t.name = optarg;
			break;
		case 't':
			o.seconds = strtoul(optarg, NULL, 10);
			break;
		case 'c':
			o.samples = strtoul(optarg, NULL, 10);
			break;
		case 's':
			o.steps = strtoul(optarg, NULL, 10);
			break;
		case 'r':
			o.seed = strtoul(optarg, NULL, 10);
			break;
		case 'o':
			save = optarg;
			break;
		case 'i':
			from = optarg;
			break;
		case 'a':
			if (t.allowed_count < ALLOWED_MAX)
				t.allowed[t.allowed_count++] = optarg;
			break;
		case 'p':
			t.apart_part = strtoul(optarg, NULL, 10);
			break;
		case 'f':
			diff_ours_fault = true;
			break;
		default:
			return 2;
		}
	}
	o.argv = argv + optind;
	if (from)
		return replay(&t, from);
	return argc > optind ? run(&t, &o, save) : 2;
}
