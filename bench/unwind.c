/*
 * Nanoseconds per frame of our unwinder and of the map-per-lookup layout, in one process, over the same stacks and
 * rows (bench/unwind.bpf.c). 40 files with 300,000 rows; each frame lies at a random row. Its file is another random
 * one (the worst for a cache of the last mapping), or 7 times of 8 its callee's, as it is in real stacks (83 to 91 %
 * in bash, python3, libjvm, node: tests/e2e/unwind_differential.sh). Stacks are real user memory of this process.
 *
 * Each measurement is one run of a program by BPF_PROG_TEST_RUN, timed inside; runs go A B B A, so that a drift of the
 * machine meets both; medians of all runs, and quartiles of the ratio within each group of four.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include "agent/bpf/table.h"
#include "agent/cfi.h"
#include "base/def.h"
#include "bench/unwind.h"
#include "bench/unwind.skel.h"

enum {
	FILES = 40,
	ROWS = 300000,
	RULES = 1000,
	CHUNK_RULES = 100, /* of one chunk */
	TRIE_ENTRIES = 24000,
	STACK_SIZE = 1 << 16,
	LIST_AT = 64,
	COLD_SIZE = 96 << 20,
	ROUNDS_MAX = 1000,
	WARM_PASSES = 64,
	FP_RULES = 5,    /* one of so many rules counts from the frame pointer */
	SAVED_RULES = 3, /* and two of so many save it */
};
#define ADDRESS 0x7f1000000000ULL
#define APART   0x40000000ULL /* from file to file */

struct shape {
	const char *name;
	uint32_t chunks; /* of one file */
	uint32_t stay;   /* of 8 callers, how many are in their callee's file */
};

/* Both are laid out of these. */
struct data {
	uint32_t chunks, per_chunk;
	struct unwind_rule rules[RULES];
	struct cfi_row *rows; /* of all chunks of all files; .rule into rules */
};

static uint64_t random_state = 88172645463325252ULL;

static uint64_t draw(uint64_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static void die(const char *what, int error)
{
	fprintf(stderr, "bench: unwind: %s: %s\n", what, strerror(error));
	exit(1);
}

static void check(int r, const char *what)
{
	if (r < 0)
		die(what, -r);
}

static void *allocate(size_t count, size_t size)
{
	void *p = calloc(count, size);

	if (!p)
		die("memory", ENOMEM);
	return p;
}

static struct cfi_row *chunk_rows(const struct data *d, uint32_t file, uint32_t chunk)
{
	return d->rows + ((size_t)file * d->chunks + chunk) * d->per_chunk;
}

static int row_order(const void *a, const void *b)
{
	return ((const struct cfi_row *)a)->offset - ((const struct cfi_row *)b)->offset;
}

static void make_data(struct data *d, uint32_t chunks)
{
	d->chunks = chunks;
	d->per_chunk = ROWS / FILES / chunks;
	d->rows = allocate((size_t)FILES * chunks * d->per_chunk, sizeof(*d->rows));
	for (uint32_t i = 0; i < RULES; i++) {
		bool is_fp = draw(FP_RULES) == 0;
		bool is_saved = is_fp || draw(SAVED_RULES) > 0;

		d->rules[i] = (struct unwind_rule){.cfa = is_fp ? UNWIND_CFA_FP : UNWIND_CFA_SP,
			.cfa_offset = is_fp ? 16 : 16 + 8 * (int32_t)draw(24),
			.fp = is_saved ? UNWIND_AT_CFA : UNWIND_SAME,
			.fp_offset = is_saved ? -16 : 0,
			.ra = UNWIND_AT_CFA,
			.ra_offset = -8};
	}
	for (uint32_t k = 0; k < FILES * chunks; k++) {
		struct cfi_row *rows = chunk_rows(d, 0, k);
		uint16_t palette = (uint16_t)draw(RULES - CHUNK_RULES);
		uint32_t step = (1 << TABLE_CHUNK_SHIFT) / d->per_chunk;

		/* One row in each step: distinct, and spread as functions are. */
		for (uint32_t i = 0; i < d->per_chunk; i++)
			rows[i] = (struct cfi_row){
				.offset = (uint16_t)(i * step + (i > 0 ? draw(step) : 0)),
				.rule = (uint16_t)(palette + draw(CHUNK_RULES))};
		qsort(rows, d->per_chunk, sizeof(*rows), row_order);
	}
}

static uint64_t file_start(uint32_t file)
{
	return ADDRESS + file * APART;
}

static uint64_t file_id(uint32_t file)
{
	return 0x9e3779b97f4a7c15ULL * (file + 1);
}

/* --- stacks --- */

struct frame {
	const struct unwind_rule *rule;
	uint64_t pc, sp, cfa, fp;
};

static void put_word(uint8_t *memory, uint64_t address, uint64_t value)
{
	memcpy(memory + (address - (uintptr_t)memory), &value, sizeof(value));
}

/* A stack of depth frames in memory; pcs are return addresses behind random rows. */
static struct bench_stack make_stack(
	const struct data *d, uint8_t *memory, uint32_t depth, uint32_t stay)
{
	struct frame f[BENCH_DEPTH_MAX + 1] = {0};
	uint64_t sp = (uintptr_t)memory;
	uint32_t file = 0;

	for (uint32_t i = 0; i < depth; i++) {
		if (i == 0 || draw(8) >= stay)
			file = (uint32_t)draw(FILES);
		uint32_t chunk = (uint32_t)draw(d->chunks);
		const struct cfi_row *row = chunk_rows(d, file, chunk) + draw(d->per_chunk);

		f[i].rule = &d->rules[row->rule];
		f[i].pc = file_start(file) + ((uint64_t)chunk << TABLE_CHUNK_SHIFT) + row->offset +
			  (i > 0);
		f[i].sp = sp;
		/* Of a frame with a frame pointer, locals of any size. */
		sp += f[i].rule->cfa == UNWIND_CFA_FP ? 32 + 8 * draw(24)
						      : (uint64_t)f[i].rule->cfa_offset;
		f[i].cfa = sp;
	}
	for (uint32_t i = depth; i-- > 0;) {
		bool is_fp = f[i].rule->cfa == UNWIND_CFA_FP;

		f[i].fp = is_fp                          ? f[i].cfa - 16
			  : f[i].rule->fp == UNWIND_SAME ? f[i + 1].fp
							 : draw(1000) * 8;
		if (f[i].rule->fp != UNWIND_SAME)
			put_word(memory, f[i].cfa - 16, f[i + 1].fp);
		put_word(memory, f[i].cfa - 8, f[i + 1].pc);
	}
	return (struct bench_stack){.pc = f[0].pc, .sp = f[0].sp, .fp = f[0].fp};
}

/* --- our layout --- */

struct slabs {
	struct unwind_bpf *b;
	uint8_t *bytes; /* of the one under way */
	uint32_t index, fill;
};

static void slab_flush(struct slabs *s)
{
	LIBBPF_OPTS(bpf_map_create_opts, o, .map_flags = BPF_F_MMAPABLE);
	uint32_t zero = 0;
	int fd = bpf_map_create(
		BPF_MAP_TYPE_ARRAY, "bench_slab", sizeof(uint32_t), TABLE_SLAB_SIZE, 1, &o);

	check(fd, "slab");
	check(bpf_map_update_elem(fd, &zero, s->bytes, BPF_ANY), "slab");
	check(bpf_map_update_elem(bpf_map__fd(s->b->maps.slabs), &s->index, &fd, BPF_ANY), "slabs");
	close(fd);
	memset(s->bytes, 0, TABLE_SLAB_SIZE);
	s->index++;
	s->fill = TABLE_REF_MIN;
}

static uint32_t pack_chunk(struct slabs *s, const struct data *d, const struct cfi_row *rows)
{
	static struct cfi_chunk c;
	static uint16_t map[RULES], back[RULES];

	memset(map, 0, sizeof(map));
	c.row_count = d->per_chunk;
	c.rule_count = 0;
	for (uint32_t i = 0; i < d->per_chunk; i++) {
		uint16_t rule = rows[i].rule;

		if (map[rule] == 0) {
			back[c.rule_count] = (uint16_t)(TABLE_RULE_FIRST + rule);
			map[rule] = (uint16_t)++c.rule_count;
		}
		c.rows[i] = (struct cfi_row){rows[i].offset, (uint16_t)(map[rule] - 1)};
	}
	size_t size = cfi_packed_size(&c);

	if (s->fill + size > TABLE_SLAB_SIZE)
		slab_flush(s);
	cfi_pack(&c, back, s->bytes + s->fill, size);
	uint32_t ref = s->index << TABLE_SLAB_SHIFT | s->fill;

	s->fill += (uint32_t)size;
	return ref;
}

static uint64_t lay_ours(struct unwind_bpf *b, const struct data *d)
{
	struct slabs s = {.b = b, .bytes = allocate(1, TABLE_SLAB_SIZE), .fill = LIST_AT};
	uint32_t *dirs = allocate(TABLE_DIRS_MAX, sizeof(*dirs)), zero = 0, dir = 1;
	struct process_key key = {.start_ns = 1, .tgid = BENCH_TGID};
	struct table_process process = {.list = LIST_AT, .count = FILES};

	for (uint32_t f = 0; f < FILES; f++) {
		struct table_mapping m = {.start = file_start(f),
			.end = file_start(f) + ((uint64_t)d->chunks << TABLE_CHUNK_SHIFT),
			.bias = file_start(f),
			.dir = 1 + f * d->chunks,
			.chunk_count = d->chunks};

		memcpy(s.bytes + s.fill, &m, sizeof(m));
		s.fill += sizeof(m);
	}
	for (uint32_t f = 0; f < FILES; f++)
		for (uint32_t c = 0; c < d->chunks; c++)
			dirs[dir++] = pack_chunk(&s, d, chunk_rows(d, f, c));
	uint64_t bytes = (uint64_t)s.index * TABLE_SLAB_SIZE + s.fill;

	slab_flush(&s);
	check(bpf_map_update_elem(bpf_map__fd(b->maps.dirs), &zero, dirs, BPF_ANY), "dirs");
	for (uint32_t i = 0; i < RULES; i++) {
		uint32_t at = TABLE_RULE_FIRST + i;

		check(bpf_map_update_elem(bpf_map__fd(b->maps.rules), &at, &d->rules[i], BPF_ANY),
			"rules");
	}
	check(bpf_map_update_elem(bpf_map__fd(b->maps.procs), &key, &process, BPF_ANY), "procs");
	free(dirs);
	free(s.bytes);
	return bytes;
}

/* --- map-per-lookup --- */

/* The range as the fewest aligned powers of two. */
static uint32_t put_range(
	int fd, uint32_t tgid, uint64_t start, uint64_t end, const struct bench_mapping *m)
{
	uint32_t count = 0;

	for (; start < end; count++) {
		uint32_t shift = (uint32_t)__builtin_ctzll(start);

		while ((1ULL << shift) > end - start)
			shift--;
		struct bench_trie_key key = {
			.prefix = 96 - shift, .tgid = tgid, .page_be = __builtin_bswap64(start)};

		check(bpf_map_update_elem(fd, &key, m, BPF_ANY), "trie");
		start += 1ULL << shift;
	}
	return count;
}

static void lay_trie(struct unwind_bpf *b, const struct data *d)
{
	int fd = bpf_map__fd(b->maps.trie);
	uint32_t count = 0;

	for (uint32_t f = 0; f < FILES; f++) {
		struct bench_mapping m = {.file = file_id(f), .bias = file_start(f)};

		count += put_range(fd, BENCH_TGID, file_start(f),
			file_start(f) + ((uint64_t)d->chunks << TABLE_CHUNK_SHIFT), &m);
	}
	/* Other processes', of random sizes at random pages. */
	for (uint32_t tgid = BENCH_TGID + 1; count < TRIE_ENTRIES; tgid++) {
		for (uint32_t f = 0; f < FILES && count < TRIE_ENTRIES; f++) {
			struct bench_mapping m = {.file = draw(FILES), .bias = draw(1 << 30)};
			uint64_t start = file_start(f) + (draw(1 << 10) << 12);

			count += put_range(fd, tgid, start, start + ((1 + draw(1 << 8)) << 12), &m);
		}
	}
}

static void lay_file(struct unwind_bpf *b, const struct data *d, uint32_t f)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "bench_deltas", sizeof(uint32_t),
		sizeof(struct bench_delta), BENCH_DELTAS, NULL);
	uint64_t id = file_id(f);
	uint32_t at = 0;

	check(fd, "deltas");
	for (uint32_t c = 0; c < d->chunks; c++) {
		struct bench_page_key key = {.file = id, .page = c};
		struct bench_page page = {.first = at, .count = (uint16_t)d->per_chunk};
		const struct cfi_row *rows = chunk_rows(d, f, c);

		for (uint32_t i = 0; i < d->per_chunk; i++, at++) {
			struct bench_delta delta = {rows[i].offset, rows[i].rule};

			check(bpf_map_update_elem(fd, &at, &delta, BPF_ANY), "deltas");
		}
		check(bpf_map_update_elem(bpf_map__fd(b->maps.pages), &key, &page, BPF_ANY),
			"pages");
	}
	check(bpf_map_update_elem(bpf_map__fd(b->maps.files), &id, &fd, BPF_ANY), "files");
	close(fd);
}

static void lay_maps(struct unwind_bpf *b, const struct data *d)
{
	lay_trie(b, d);
	for (uint32_t f = 0; f < FILES; f++)
		lay_file(b, d, f);
	for (uint32_t i = 0; i < RULES; i++) {
		const struct unwind_rule *r = &d->rules[i];
		struct bench_info info = {.base = r->cfa == UNWIND_CFA_FP ? 6 : 7,
			.flags = r->fp != UNWIND_SAME,
			.param = r->cfa_offset};

		check(bpf_map_update_elem(bpf_map__fd(b->maps.infos), &i, &info, BPF_ANY), "infos");
	}
}

/* --- runs --- */

enum mode { WARM, MANY, COLD, MODES };
static const char *const mode_names[MODES] = {
	"one stack, warm", "64 stacks", "64 stacks, caches overwritten"};

static uint8_t *cold_memory;

/* Nanoseconds per frame. */
static double measure(struct unwind_bpf *b, bool is_ours, enum mode mode)
{
	int fd = bpf_program__fd(is_ours ? b->progs.walk_ours : b->progs.walk_maps);
	LIBBPF_OPTS(bpf_test_run_opts, o);
	struct bench_run *run = &b->bss->run;

	run->first = mode == WARM ? (uint32_t)draw(BENCH_STACKS) : 0;
	run->count = mode == WARM ? 1 : BENCH_STACKS;
	run->passes = mode == WARM ? WARM_PASSES : 1;
	if (mode != COLD) /* what it needs is in the caches that hold it */
		check(bpf_prog_test_run_opts(fd, &o), "run");
	else
		for (size_t i = 0; i < COLD_SIZE; i += 64)
			cold_memory[i]++;
	run->frames = 0;
	run->hash = 0;
	run->fault = 0;
	check(bpf_prog_test_run_opts(fd, &o), "run");
	if (run->fault || run->frames == 0)
		die("a walk did not end at the first frame", EBADMSG);
	return (double)run->ns / (double)run->frames;
}

static int double_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(double *values, size_t n, double q)
{
	qsort(values, n, sizeof(*values), double_order);
	return values[(size_t)(q * (double)(n - 1) + 0.5)];
}

static void compare(struct unwind_bpf *b, const char *shape, enum mode mode, uint32_t depth,
	uint32_t rounds, FILE *json)
{
	static double ours[2 * ROUNDS_MAX], maps[2 * ROUNDS_MAX], ratio[ROUNDS_MAX];

	for (uint32_t i = 0; i < rounds; i++) {
		ours[2 * i] = measure(b, true, mode);
		maps[2 * i] = measure(b, false, mode);
		maps[2 * i + 1] = measure(b, false, mode);
		ours[2 * i + 1] = measure(b, true, mode);
		ratio[i] = (maps[2 * i] + maps[2 * i + 1]) / (ours[2 * i] + ours[2 * i + 1]);
	}
	double o = quantile(ours, 2 * rounds, 0.5), m = quantile(maps, 2 * rounds, 0.5);
	double r = quantile(ratio, rounds, 0.5), low = quantile(ratio, rounds, 0.25),
	       high = quantile(ratio, rounds, 0.75);

	printf("%-25s %-30s %6.0f %9.2f us %8.0f %9.2f us %7.2f (%.2f to %.2f)\n", shape,
		mode_names[mode], o, o * depth / 1000, m, m * depth / 1000, r, low, high);
	fprintf(json,
		"%s\n  {\"rows\": \"%s\", \"stacks\": \"%s\", \"depth\": %" PRIu32
		", \"ours_ns_per_frame\": %.1f, \"ours_low_quartile\": %.1f, "
		"\"maps_ns_per_frame\": %.1f, \"maps_low_quartile\": %.1f, "
		"\"ratio\": %.2f, \"ratio_quartiles\": [%.2f, %.2f]}",
		ftell(json) > 2 ? "," : "", shape, mode_names[mode], depth, o,
		quantile(ours, 2 * rounds, 0.25), m, quantile(maps, 2 * rounds, 0.25), r, low,
		high);
}

/* Both must give the same stacks. */
static void check_same(struct unwind_bpf *b, uint32_t depth)
{
	struct bench_run *run = &b->bss->run;

	(void)measure(b, true, MANY);
	uint64_t hash = run->hash, frames = run->frames;

	(void)measure(b, false, MANY);
	if (run->hash != hash || run->frames != frames || frames != (uint64_t)BENCH_STACKS * depth)
		die("the walks differ", EBADMSG);
}

static void bench(const struct shape *s, uint32_t depth, uint32_t rounds, FILE *json)
{
	struct unwind_bpf *b = unwind_bpf__open_and_load();
	uint8_t *memory = mmap(NULL, (size_t)BENCH_STACKS * STACK_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	static struct data d;

	if (!b || memory == MAP_FAILED)
		die("loading", errno);
	make_data(&d, s->chunks);
	uint64_t bytes = lay_ours(b, &d);

	lay_maps(b, &d);
	for (uint32_t i = 0; i < BENCH_STACKS; i++)
		b->bss->run.stacks[i] =
			make_stack(&d, memory + (size_t)i * STACK_SIZE, depth, s->stay);
	check_same(b, depth);
	printf("%-25s %u files of %.1f MB, %u rows, %.2f MB of our tables\n", s->name, FILES,
		(double)s->chunks / 16, FILES * d.chunks * d.per_chunk, (double)bytes / (1 << 20));
	for (enum mode m = WARM; m < MODES; m++)
		compare(b, s->name, m, depth, m == COLD ? (rounds + 3) / 4 : rounds, json);
	free(d.rows);
	(void)munmap(memory, (size_t)BENCH_STACKS * STACK_SIZE);
	unwind_bpf__destroy(b);
}

/* Fills a static buffer. */
static const char *load_average(void)
{
	static char text[64];
	_cleanup_(fclosep) FILE *f = fopen("/proc/loadavg", "r");

	if (!f || !fgets(text, sizeof(text), f))
		return "unknown";
	text[strcspn(text, "\n")] = 0;
	return text;
}

int main(int argc, char **argv)
{
	static const struct shape shapes[] = {{"dense, callers stay 7/8", 8, 7},
		{"dense, callers anywhere", 8, 0}, {"spread, callers anywhere", 192, 0}};
	uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 100;
	uint32_t depth = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 32;
	_cleanup_(fclosep) FILE *json = argc > 1 ? fopen(argv[1], "w") : NULL;
	struct utsname u = {0};
	cpu_set_t one;

	if (!json || rounds < 1 || rounds > ROUNDS_MAX || depth < 2 || depth > BENCH_DEPTH_MAX) {
		fprintf(stderr, "usage: unwind JSON [ROUNDS [DEPTH]]\n");
		return 2;
	}
	cold_memory = allocate(1, COLD_SIZE);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	(void)sched_setaffinity(0, sizeof(one), &one); /* noise, if it is refused */
	(void)uname(&u);                               /* cannot fail */
	printf("kernel %s, load %s, %u groups of four runs, %u frames\n", u.release, load_average(),
		rounds, depth);
	printf("%-25s %-30s %6s %12s %8s %12s %7s\n", "rows", "stacks", "ours", "a sample", "maps",
		"a sample", "ratio (quartiles)");
	fprintf(json, "[");
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++)
		bench(&shapes[i], depth, rounds, json);
	fprintf(json, "\n]\n");
	printf("load at the end %s\n", load_average());
	return 0;
}
