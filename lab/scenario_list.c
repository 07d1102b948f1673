/* All scenarios of a directory, by name, so that every output has the same order. */
#include <dirent.h>
#include <errno.h>

#include "base/def.h"
#include "base/str.h"
#include "lab/scenario.h"

static int scenario_filter(const struct dirent *d)
{
	return str_has_suffix(d->d_name, ".json") && d->d_name[0] != '.';
}

/* By bytes, not by locale as alphasort does. */
static int scenario_compare(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int scenario_list_load(struct scenario_list *l, const char *dir)
{
	struct dirent **names = NULL;
	int n, r = 0;

	*l = (struct scenario_list){0};
	n = scandir(dir, &names, scenario_filter, scenario_compare);
	if (n < 0) {
		r = -errno;
		(void)snprintf(l->message, sizeof(l->message), "%s: %s", dir, strerror(-r));
		return r;
	}
	if (n > SCENARIO_COUNT_MAX) {
		(void)snprintf(l->message, sizeof(l->message), "%s: more than %d scenarios", dir,
			SCENARIO_COUNT_MAX);
		r = -EBADMSG;
	}
	if (r == 0) {
		l->items = calloc((size_t)n + 1, sizeof(*l->items));
		r = l->items ? 0 : -ENOMEM;
	}
	for (int i = 0; i < n && r == 0; i++) {
		char path[1024];

		(void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		r = scenario_load(&l->items[l->count++], path);
		if (r < 0)
			(void)snprintf(l->message, sizeof(l->message), "%s",
				l->items[l->count - 1].doc.message);
	}
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return r;
}

void scenario_list_done(struct scenario_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		scenario_done(&l->items[i]);
	free(l->items);
	*l = (struct scenario_list){0};
}

struct scenario *scenario_find(struct scenario_list *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++)
		if (strcmp(l->items[i].name, name) == 0)
			return &l->items[i];
	return NULL;
}
