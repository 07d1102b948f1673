/* What merged windows say of themselves: how many, from when to when, their period, their facts. */
#include <errno.h>

#include "backend/store_query_internal.h"
#include "base/def.h"
#include "prof/profile_internal.h"

int store_about_init(struct store_about *a)
{
	*a = (struct store_about){.first_ns = INT64_MAX, .end_ns = INT64_MIN};
	a->facts = store_facts_new();
	return a->facts ? 0 : -ENOMEM;
}

void store_about_done(struct store_about *a)
{
	store_facts_free(a->facts);
	a->facts = NULL;
}

static void note_period(struct store_about *a, const struct store_window_about *w)
{
	if (w->period < 0)
		a->is_mixed = true;
	if (!a->has_period) {
		a->has_period = true;
		a->period = w->period;
		(void)snprintf(a->period_type, sizeof(a->period_type), "%s", w->period_type);
		(void)snprintf(a->period_unit, sizeof(a->period_unit), "%s", w->period_unit);
	} else if (a->period != w->period || strcmp(a->period_type, w->period_type) != 0 ||
		   strcmp(a->period_unit, w->period_unit) != 0) {
		a->is_mixed = true;
	}
}

void store_about_add(struct store_about *a, const struct store_window_about *w)
{
	a->left_out += w->left_out;
	if (w->windows == 0)
		return;
	if (store_facts_add(a->facts, w->facts_size ? w->facts : "", w->facts_size) < 0)
		a->damaged++;
	a->windows += w->windows;
	a->first_ns = MIN(a->first_ns, w->first_ns);
	a->end_ns = MAX(a->end_ns, w->end_ns);
	note_period(a, w);
}

void store_about_get(const struct store_about *a, struct store_window_about *ret)
{
	*ret = (struct store_window_about){
		.windows = a->windows,
		.left_out = a->left_out,
		.first_ns = a->windows ? a->first_ns : 0,
		.end_ns = a->windows ? a->end_ns : 0,
		.period = a->is_mixed ? -1 : a->period,
		.period_type = a->is_mixed ? "" : a->period_type,
		.period_unit = a->is_mixed ? "" : a->period_unit,
	};
}

const char *store_column_text(sqlite3_stmt *s, int column)
{
	const char *text = (const char *)sqlite3_column_text(s, column);

	return text ? text : "";
}
