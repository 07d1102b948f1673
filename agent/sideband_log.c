/*
 * See sideband_log.h. Two circles: events and the bytes of their paths. Positions count up for ever, so
 * whether something is still there is one comparison; a bucket's chain ends where it leads out of the
 * circle.
 */
#include "agent/sideband_log.h"

#include <errno.h>

#include "base/def.h"

enum { SIDEBAND_LOG_BITS = 12 };

struct sideband_entry {
	struct sideband_event event; /* its path is in the text */
	uint64_t text;               /* position */
	uint64_t next;               /* the one before in the bucket; 0: none */
};

struct sideband_log {
	struct sideband_entry *entries;
	uint64_t entries_max, count; /* the last one is number count */
	char *text;
	uint64_t text_max, text_end;
	uint64_t forgotten_ns;
	uint64_t buckets[1 << SIDEBAND_LOG_BITS];
};

int sideband_log_new(size_t events_max, size_t text_max, struct sideband_log **ret)
{
	struct sideband_log *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->entries = calloc(events_max, sizeof(*l->entries));
	l->text = malloc(text_max);
	l->entries_max = events_max;
	l->text_max = text_max;
	if (!l->entries || !l->text) {
		sideband_log_free(l);
		return -ENOMEM;
	}
	*ret = l;
	return 0;
}

void sideband_log_free(struct sideband_log *l)
{
	if (!l)
		return;
	free(l->entries);
	free(l->text);
	free(l);
}

static size_t sideband_log_bucket(uint32_t tgid)
{
	return (tgid * 0x9e3779b1U) >> (32 - SIDEBAND_LOG_BITS);
}

/* In one piece: what does not fit before the circle's end begins anew. */
static uint64_t sideband_log_put_text(struct sideband_log *l, const char *s, size_t size)
{
	uint64_t at = l->text_end;

	if (size == 0 || size > l->text_max)
		return 0;
	if (at % l->text_max + size > l->text_max)
		at += l->text_max - at % l->text_max;
	memcpy(l->text + at % l->text_max, s, size);
	l->text_end = at + size;
	return at;
}

void sideband_log_add(struct sideband_log *l, const struct sideband_event *e)
{
	if (e->kind == SIDEBAND_OTHER)
		return;
	uint64_t *bucket = &l->buckets[sideband_log_bucket(e->tgid)];
	struct sideband_entry *entry = &l->entries[++l->count % l->entries_max];

	l->forgotten_ns = MAX(l->forgotten_ns, entry->event.time_ns);
	*entry = (struct sideband_entry){.event = *e, .next = *bucket};
	entry->event.path = NULL;
	entry->text = sideband_log_put_text(l, e->path, e->path_size);
	if (e->path_size > l->text_max)
		entry->event.path_size = 0;
	*bucket = l->count;
}

bool sideband_log_next(
	const struct sideband_log *l, uint32_t tgid, uint64_t *at, struct sideband_event *ret)
{
	uint64_t n = *at == 0 ? l->buckets[sideband_log_bucket(tgid)]
			      : l->entries[*at % l->entries_max].next;

	for (; n != 0 && n + l->entries_max > l->count; n = l->entries[n % l->entries_max].next) {
		const struct sideband_entry *e = &l->entries[n % l->entries_max];

		if (e->event.tgid != tgid)
			continue;
		*at = n;
		*ret = e->event;
		ret->order = n;
		ret->path = l->text + e->text % l->text_max;
		if (e->text + l->text_max < l->text_end)
			ret->path_size = 0;
		return true;
	}
	return false;
}

uint64_t sideband_log_forgotten_ns(const struct sideband_log *l)
{
	return l->forgotten_ns;
}
