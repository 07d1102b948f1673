/*
 * What the unwind tables of files cost: compiles every chunk of each file that is named and prints a line
 * of figures. Chunk times are of cfi_compile() alone, each chunk the best of UNWIND_TABLES_ROUNDS.
 *
 *	unwind_tables FILE REFERENCE_KIB ...
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "agent/cfi.h"
#include "base/def.h"

enum { UNWIND_TABLES_ROUNDS = 3, UNWIND_TABLES_RULES_MAX = 1 << 16 };

struct figures {
	uint64_t text, rows, shapes, bytes, ns, chunks, functions, broken;
	uint64_t chunk_ns_max;
	uint64_t chunk_rules_max;
	size_t rules;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail */
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Rules of the whole file; few, so they are searched in order of their first use. */
static void count_rules(const struct cfi_chunk *c, struct unwind_rule *rules, struct figures *f)
{
	for (size_t i = 0; i < c->rule_count; i++) {
		size_t k = 0;

		while (k < f->rules && memcmp(&rules[k], &c->rules[i], sizeof(*rules)) != 0)
			k++;
		if (k == f->rules && f->rules < UNWIND_TABLES_RULES_MAX)
			rules[f->rules++] = c->rules[i];
	}
	for (size_t i = 0; i < c->row_count; i++)
		f->shapes += c->rules[c->rows[i].rule].cfa == UNWIND_CFA_FP_SHAPE;
}

static void measure(
	struct cfi *c, struct cfi_chunk *chunk, struct unwind_rule *rules, struct figures *f)
{
	struct cfi_info info;

	cfi_info(c, &info);
	f->text = info.text_end - info.text_start;
	f->functions = info.functions;
	for (uint64_t i = info.text_start >> TABLE_CHUNK_SHIFT;
		i <= (info.text_end - 1) >> TABLE_CHUNK_SHIFT; i++) {
		uint64_t best = UINT64_MAX;
		int r = 0;

		for (int round = 0; round < UNWIND_TABLES_ROUNDS; round++) {
			uint64_t start = now_ns();

			r = cfi_compile(c, i, chunk);
			best = MIN(best, now_ns() - start);
		}
		f->ns += best;
		f->chunk_ns_max = MAX(f->chunk_ns_max, best);
		if (r < 0)
			f->broken++;
		if (r < 0 || chunk->row_count == 0)
			continue;
		f->chunks++;
		f->rows += chunk->row_count;
		f->bytes += cfi_packed_size(chunk);
		f->chunk_rules_max = MAX(f->chunk_rules_max, chunk->rule_count);
		count_rules(chunk, rules, f);
	}
}

static void print(
	const char *path, const char *reference, const struct figures *f, uint64_t open_ns)
{
	double mb = (double)f->text / (1 << 20);

	printf("%-44.44s %8.0f %8" PRIu64 " %8" PRIu64 " %6zu %5" PRIu64
	       " %7.0f %9s %8.1f %7.0f %7.0f "
	       "%7.2f %6" PRIu64 "\n",
		path, (double)f->text / 1024, f->functions, f->rows, f->rules, f->chunk_rules_max,
		(double)f->bytes / 1024, reference, (double)open_ns / 1000,
		f->chunks ? (double)f->ns / 1000 / (double)f->chunks : 0,
		(double)f->chunk_ns_max / 1000, mb > 0 ? (double)f->ns / 1e6 / mb : 0, f->broken);
}

int main(int argc, char **argv)
{
	_cleanup_(freep) struct cfi_chunk *chunk = malloc(sizeof(*chunk));
	_cleanup_(freep) struct unwind_rule *rules =
		calloc(UNWIND_TABLES_RULES_MAX, sizeof(*rules));

	if (!chunk || !rules)
		return 1;
	printf("%-44s %8s %8s %8s %6s %5s %7s %9s %8s %7s %7s %7s %6s\n", "file", "text_KiB",
		"FDEs", "rows", "rules", "/chnk", "KiB", "reference", "open_us", "us/chnk",
		"max_us", "ms/MB", "broken");
	for (int i = 1; i + 1 < argc; i += 2) {
		_cleanup_(closep) int fd = open(argv[i], O_RDONLY | O_CLOEXEC);
		struct figures f = {0};
		const char *why = strerror(errno);
		struct cfi *c = NULL;
		uint64_t start = now_ns();
		int r = fd < 0 ? -errno : cfi_open(fd, &why, &c);
		uint64_t open_ns = now_ns() - start;

		if (r < 0) {
			printf("%-44.44s SKIP: %s\n", argv[i], why);
			continue;
		}
		measure(c, chunk, rules, &f);
		print(argv[i], argv[i + 1], &f, open_ns);
		cfi_free(c);
	}
	return 0;
}
