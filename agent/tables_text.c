/*
 * What was used, as text, from one recording to the next. Lines:
 *
 *	process TGID START_NS EXEC_ID
 *	file MAJOR MINOR INODE SIZE MTIME_NS
 *	chunk FIRST COUNT			of the file above
 *
 * It is read like any other foreign text, and nothing in it is believed: a process has to be there
 * with its start time, a file is found through the processes that map it now, and has to have the
 * same size and mtime. What is built is what the file says today.
 */
#include <errno.h>

#include "agent/tables_internal.h"
#include "base/def.h"
#include "base/loop.h"
#include "base/str.h"

enum {
	TABLES_TEXT_LINE_MAX = 160,
	TABLES_TEXT_FIELDS_MAX = 5,
	TABLES_WARM_MS = 400, /* a window's process starts a second early, and has to load too */
};

struct tables_order {
	uint64_t sequence;
	uint32_t slot;
};

static int tables_order_compare(const void *a, const void *b)
{
	const struct tables_order *x = a;
	const struct tables_order *y = b;

	return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void tables_save_chunks(const struct tables *t, const struct tables_file *f, struct buf *out)
{
	for (uint32_t i = 0; i < f->chunk_count; i++) {
		uint32_t first = i;

		while (i < f->chunk_count && tables_dir_get(t, f->dir + i) >= TABLE_REF_MIN)
			i++;
		if (i > first)
			(void)buf_printf(out, "chunk %u %u\n", f->first_chunk + first,
				i - first); /* buf keeps the error */
	}
}

static void tables_save_file(const struct tables *t, const struct tables_file *f, struct buf *out)
{
	(void)buf_printf(out, "file %u %u %llu %llu %lld\n", f->key.dev_major, f->key.dev_minor,
		(unsigned long long)f->key.inode, (unsigned long long)f->key.size,
		(long long)f->key.mtime_ns); /* buf keeps the error */
	tables_save_chunks(t, f, out);
}

int tables_save(const struct tables *t, struct buf *out)
{
	size_t count = 0;
	struct tables_order *order = calloc(TABLES_FILES_MAX + TABLE_PROCESSES_MAX, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < TABLE_PROCESSES_MAX; i++)
		if (t->processes[i].is_used && t->processes[i].list != 0)
			order[count++] = (struct tables_order){t->processes[i].sequence, i};
	qsort(order, count, sizeof(*order), tables_order_compare);
	for (size_t i = 0; i < count; i++) {
		const struct process_key *key = &t->processes[order[i].slot].key;

		(void)buf_printf(out, "process %u %llu %u\n", key->tgid,
			(unsigned long long)key->start_ns, key->exec_id); /* buf keeps the error */
	}
	count = 0;
	for (uint32_t i = 0; i < TABLES_FILES_MAX; i++)
		if (t->files[i].state == TABLES_FILE_HAS_DIR && t->files[i].first_used != 0 &&
			!t->files[i].is_stale)
			order[count++] = (struct tables_order){t->files[i].first_used, i};
	qsort(order, count, sizeof(*order), tables_order_compare);
	for (size_t i = 0; i < count; i++)
		tables_save_file(t, &t->files[order[i].slot], out);
	free(order);
	return buf_error(out);
}

struct tables_line {
	char text[TABLES_TEXT_LINE_MAX];
	const char *word;
	uint64_t fields[TABLES_TEXT_FIELDS_MAX];
	size_t count;
};

/* A word and decimal numbers. False: something else. */
static bool tables_line_parse(struct tables_line *l)
{
	char *pos = strchr(l->text, ' ');

	l->word = l->text;
	l->count = 0;
	while (pos) {
		char *next = strchr(pos + 1, ' ');

		*pos++ = '\0';
		if (next)
			*next = '\0';
		if (l->count == TABLES_TEXT_FIELDS_MAX ||
			str_to_u64(pos, 0, INT64_MAX, &l->fields[l->count]) < 0)
			return false;
		l->count++;
		pos = next;
	}
	return true;
}

static void tables_warm_process(struct tables *t, const struct tables_line *l)
{
	struct process_key key = {
		.tgid = (uint32_t)l->fields[0],
		.start_ns = l->fields[1],
		.exec_id = (uint32_t)l->fields[2],
	};

	if (l->count != 3 || l->fields[0] == 0 || l->fields[0] > INT32_MAX || key.start_ns == 0 ||
		l->fields[2] > UINT32_MAX)
		return;

	struct tables_process *p = tables_process_get(t, &key, 0);

	if (p) /* else there is nothing to warm */
		p->is_warm = true;
}

/* Slot + 1 of a file that a process of today maps, or 0. */
static uint32_t tables_warm_file(const struct tables *t, const struct tables_line *l)
{
	struct tables_file_key key = {
		.dev_major = (uint32_t)l->fields[0],
		.dev_minor = (uint32_t)l->fields[1],
		.inode = l->fields[2],
		.size = l->fields[3],
		.mtime_ns = (int64_t)l->fields[4],
	};

	if (l->count != 5 || l->fields[0] > UINT32_MAX || l->fields[1] > UINT32_MAX)
		return 0;
	return tables_file_find(t, &key);
}

static void tables_warm_chunks(struct tables *t, uint32_t file, const struct tables_line *l)
{
	struct tables_file *f = file == 0 ? NULL : &t->files[file - 1];

	if (!f || l->count != 2 || f->state != TABLES_FILE_HAS_DIR || f->fd < 0 ||
		l->fields[0] < f->first_chunk || l->fields[1] == 0 ||
		l->fields[0] - f->first_chunk >= f->chunk_count ||
		l->fields[1] > f->chunk_count - (l->fields[0] - f->first_chunk))
		return;
	tables_file_build(t, f, (uint32_t)l->fields[0], (uint32_t)l->fields[1]);
}

void tables_warm(struct tables *t, const char *text, size_t size)
{
	uint64_t deadline_ns = loop_now_ns() + TABLES_WARM_MS * NSEC_PER_MSEC;
	const char *end = text + size;
	uint32_t file = 0;

	while (text < end && loop_now_ns() < deadline_ns) {
		struct tables_line l;
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t length = (size_t)((stop ? stop : end) - text);

		if (length >= sizeof(l.text))
			return; /* none of ours */
		memcpy(l.text, text, length);
		l.text[length] = '\0';
		text = stop ? stop + 1 : end;
		if (!tables_line_parse(&l))
			return;
		if (strcmp(l.word, "process") == 0)
			tables_warm_process(t, &l);
		else if (strcmp(l.word, "file") == 0)
			file = tables_warm_file(t, &l);
		else if (strcmp(l.word, "chunk") == 0)
			tables_warm_chunks(t, file, &l);
	}
}
