/*
 * What the readers of the store share: the selected series, the files of a range, blobs added up.
 */
#ifndef BACKEND_STORE_QUERY_INTERNAL_H
#define BACKEND_STORE_QUERY_INTERNAL_H

#include "backend/store_internal.h"

/* The selected series and the sample types they have, in the order of their profiles. */
struct store_selection {
	const struct store_series **series; /* by id */
	size_t count;
	const struct store_series *types[PROFILE_TYPES_MAX];
	size_t type_count;
	uint8_t *type_of; /* per series */
	bool *leads; /* per series: the first of its label set, for what is counted by window */
	/* Matchers of the label `recording`, which is the rows', not the series'. */
	struct matcher recording[MATCHERS_MAX];
	size_t recording_count;
};
int store_selection_init(
	struct store_selection *x, struct store *s, const struct matcher *m, size_t m_count);
void store_selection_done(struct store_selection *x);

/* Calls fn for each data file of the range that exists, in a transaction. */
typedef int store_each_fn(void *data, struct store_file *f);
int store_each_file(
	struct store *s, const struct store_range *range, store_each_fn *fn, void *data);

/* Sums by stack id: slots of 1 + types numbers, the first is the id, 0 is free. */
struct store_sums {
	int64_t *slots;
	size_t stride, count, allocated, bytes_max;
};
void store_sums_done(struct store_sums *t);
void store_sums_clear(struct store_sums *t); /* keeps the memory */
/* 0, -EBADMSG (damaged; what came before the damage is in), -ENOBUFS, -ENOMEM. */
int store_sums_add_blob(struct store_sums *t, const void *data, size_t size, size_t type);
/* Moves the used slots to the table's front, by ascending id. */
void store_sums_sort(struct store_sums *t);

/* What a window says of itself, or many merged: then windows is their number. */
struct store_window_about {
	int64_t windows, left_out;
	int64_t first_ns, end_ns; /* the first start, the last end */
	int64_t period;           /* -1: not one and the same */
	const char *period_type, *period_unit;
	const void *facts;
	size_t facts_size;
};
struct store_about {
	struct store_facts *facts;
	int64_t windows, left_out, damaged;
	int64_t first_ns, end_ns;
	char period_type[PROFILE_NAME_MAX + 1], period_unit[PROFILE_NAME_MAX + 1];
	int64_t period;
	bool has_period, is_mixed;
};
int store_about_init(struct store_about *a);
void store_about_done(struct store_about *a);
void store_about_add(struct store_about *a, const struct store_window_about *w);
/* Without the facts, which store_facts_text gives. */
void store_about_get(const struct store_about *a, struct store_window_about *ret);
const char *store_column_text(sqlite3_stmt *s, int column); /* "" for NULL */

#endif
