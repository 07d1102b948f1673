/*
 * What is asked of which helper. Offsets are gathered per file and asked for in batches: first the
 * helper that knows names, then, if the file has DWARF, the other one for inlined functions and
 * lines of the native addresses among them. What the second one fails at costs that only.
 */
#include <errno.h>

#include "agent/symbolize_internal.h"
#include "base/def.h"
#include "base/log.h"
#include "base/loop.h"

bool symbolize_file_has_failed(const struct symbolize_file *f)
{
	return f->failed_ns != 0 && loop_now_ns() - f->failed_ns < SYMBOLIZE_RETRY_S * NSEC_PER_SEC;
}

static int symbolize_ask_order(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a;
	const uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts the pending offsets and drops repeated and known ones. */
static void symbolize_ask_tidy(const struct symbolizer *s, struct symbolize_file *f)
{
	size_t kept = 0;

	if (f->pending_count > 1)
		qsort(f->pending, f->pending_count, sizeof(*f->pending), symbolize_ask_order);
	for (size_t i = 0; i < f->pending_count; i++) {
		uint64_t offset = f->pending[i];
		const struct symbolize_symbol *known = symbolize_cache_get(s, f, offset);

		if ((kept > 0 && f->pending[kept - 1] == offset) || (known && !known->is_late))
			continue;
		f->pending[kept++] = offset;
	}
	f->pending_count = kept;
}

struct symbolize_ask_line { /* an address that DWARF may know more about */
	uint64_t vaddr, offset;
};

struct symbolize_ask {
	struct symbolizer *s;
	struct symbolize_file *file;
	struct helper_file handed; /* what the helpers get of it */
	const uint64_t *offsets;
	size_t line_count;
	struct symbolize_ask_line lines[HELPER_BATCH_MAX];
};

static void symbolize_ask_take(void *data, size_t index, const struct helper_answer *a)
{
	struct symbolize_ask *ask = data;
	uint64_t offset = ask->offsets[index];

	symbolize_cache_put(ask->s, ask->file, offset, a);
	/* Go's tables say all there is about Go. */
	if ((a->flags & HELPER_HAS_VADDR) && a->kind == NAMES_NATIVE)
		ask->lines[ask->line_count++] = (struct symbolize_ask_line){a->vaddr, offset};
}

static void symbolize_ask_merge(void *data, size_t index, const struct helper_answer *a)
{
	struct symbolize_ask *ask = data;

	symbolize_cache_merge(ask->s, ask->file, ask->lines[index].offset, a);
}

static int symbolize_ask_line_order(const void *a, const void *b)
{
	const struct symbolize_ask_line *x = a;
	const struct symbolize_ask_line *y = b;

	return (x->vaddr > y->vaddr) - (x->vaddr < y->vaddr);
}

/* Started on the first file that has DWARF: most hosts have none. */
static struct helper *symbolize_ask_lines_helper(struct symbolizer *s)
{
	struct helper_options o = {
		.role = HELPER_LINES,
		.memory_mb = s->options.lines_memory_mb,
		.timeout_ms = s->options.helper_timeout_ms,
	};

	if (!s->lines && helper_new(&o, &s->lines) < 0)
		s->lines = NULL;
	return s->lines;
}

static void symbolize_ask_no_lines(struct symbolize_ask *ask, int error, const char *reason)
{
	ask->file->no_lines_id = ask->file->id;
	ask->s->stats.lines_failed++;
	log_debug("symbolize", "read lines", "inode=%llu device=%u:%u error=%d why=\"%s\"",
		(unsigned long long)ask->file->inode, ask->file->dev_major, ask->file->dev_minor,
		-error, reason);
}

static void symbolize_ask_lines(struct symbolize_ask *ask)
{
	struct symbolizer *s = ask->s;
	struct helper *h = symbolize_ask_lines_helper(s);
	uint32_t want = s->options.lines == SYMBOLIZER_LINES_LINE ? HELPER_WANT_LINES : 0;
	uint64_t vaddrs[HELPER_BATCH_MAX];
	char reason[HELPER_REASON_MAX] = "";
	uint32_t flags = 0;
	int r;

	if (!h)
		return;
	qsort(ask->lines, ask->line_count, sizeof(*ask->lines), symbolize_ask_line_order);
	for (size_t i = 0; i < ask->line_count; i++)
		vaddrs[i] = ask->lines[i].vaddr;
	s->stats.lines_requests++;
	r = helper_ask(h, &ask->handed, want, vaddrs, ask->line_count, symbolize_ask_merge, ask,
		reason, &flags);
	if (flags & HELPER_FILE_DEBUG_UNREADABLE)
		s->stats.debug_unreadable++;
	if (r < 0 && r != -EAGAIN)
		symbolize_ask_no_lines(ask, r, reason);
}

static void symbolize_ask_fail(struct symbolize_ask *ask, int error, const char *reason)
{
	struct symbolize_file *f = ask->file;

	f->failed_ns = loop_now_ns();
	ask->s->stats.files_failed++;
	log_debug("symbolize", "read symbols", "inode=%llu device=%u:%u error=%d why=\"%s\"",
		(unsigned long long)f->inode, f->dev_major, f->dev_minor, -error, reason);
}

/* The file's debug files go with what is asked from now on. */
static void symbolize_ask_attach(struct symbolize_ask *ask)
{
	struct symbolizer *s = ask->s;
	int r = debug_files_find(s->debug_files, s->helper, ask->file->debug, &ask->handed);

	if (r < 0 && r != -EAGAIN)
		symbolize_ask_fail(ask, r, "the helper failed at its identity");
	if (r > 0) /* what was answered before is not all */
		ask->handed.id = ask->file->id = ++s->file_ids;
}

/* At most HELPER_BATCH_MAX. */
static void symbolize_ask_batch(struct symbolize_ask *ask, size_t count)
{
	struct symbolize_file *f = ask->file;
	char reason[HELPER_REASON_MAX];
	uint32_t flags = 0;

	ask->line_count = 0;
	ask->s->stats.requests++;
	int r = helper_ask(ask->s->helper, &ask->handed, HELPER_WANT_LINES, ask->offsets, count,
		symbolize_ask_take, ask, reason, &flags);

	if (flags & HELPER_FILE_GO_UNREADABLE)
		ask->s->stats.go_unreadable++;
	if (r == 0 && ask->line_count > 0 && (flags & HELPER_FILE_HAS_DWARF) &&
		f->no_lines_id != f->id)
		symbolize_ask_lines(ask);
	if (r < 0 && r != -EAGAIN)
		symbolize_ask_fail(ask, r, reason);
}

static void symbolize_ask_file(struct symbolizer *s, struct symbolize_file *f)
{
	struct symbolize_ask ask = {.s = s,
		.file = f,
		.handed = {.id = f->id, .fd = f->fd, .debug_fd = -1, .alt_fd = -1}};

	if (f->fd >= 0 && f->pending_count > 0 && !symbolize_file_has_failed(f))
		symbolize_ask_attach(&ask);
	if (f->fd >= 0 && !symbolize_file_has_failed(f))
		symbolize_ask_tidy(s, f);
	for (size_t i = 0; i < f->pending_count; i += HELPER_BATCH_MAX) {
		if (f->fd < 0 || symbolize_file_has_failed(f))
			break;
		ask.offsets = f->pending + i;
		symbolize_ask_batch(&ask, MIN(f->pending_count - i, (size_t)HELPER_BATCH_MAX));
	}
	f->pending_count = 0;
}

void symbolize_cache_queue(struct symbolizer *s, struct symbolize_file *f, uint64_t offset)
{
	if (f->fd < 0 || symbolize_file_has_failed(f))
		return;
	if (f->pending_count >= SYMBOLIZE_PENDING_MAX)
		symbolize_ask_file(s, f);
	if (f->pending_count == f->pending_allocated) {
		size_t allocated = f->pending_allocated ? 2 * f->pending_allocated : 32;
		uint64_t *grown = reallocarray(f->pending, allocated, sizeof(*f->pending));

		if (!grown)
			return; /* the frame stays "[file+0x...]" this time */
		f->pending = grown;
		f->pending_allocated = allocated;
	}
	f->pending[f->pending_count++] = offset;
	if (!f->is_queued) {
		f->is_queued = true;
		s->dirty[s->dirty_count++] = (uint32_t)(f - s->files);
	}
}

void symbolize_cache_ask(struct symbolizer *s)
{
	for (size_t i = 0; i < s->dirty_count; i++) {
		struct symbolize_file *f = &s->files[s->dirty[i]];

		f->is_queued = false;
		symbolize_ask_file(s, f);
	}
	s->dirty_count = 0;
}
