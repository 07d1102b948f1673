/* See filter.h. */
#include "agent/filter.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>

#include "base/def.h"
#include "base/str.h"

enum { USER_MAX = 255, PASSWD_BYTES = 16384 };

const struct filter_texts_name filter_texts_names[FILTER_SIDES][FILTER_TEXTS] = {
	[FILTER_SIDE_ONLY] = {[FILTER_COMMS] = {"comm", "comms", FILTER_COMM_MAX},
		[FILTER_USERS] = {"user", "users", USER_MAX},
		[FILTER_CGROUPS] = {"cgroup", "cgroups", PATH_MAX - 1},
		[FILTER_CONTAINERS] = {"container", "containers", CGROUP_CONTAINER_MAX}},
	[FILTER_SIDE_EXCEPT] = {[FILTER_COMMS] = {"exclude-comm", "exclude_comms", FILTER_COMM_MAX},
		[FILTER_USERS] = {"exclude-user", "exclude_users", USER_MAX},
		[FILTER_CGROUPS] = {"exclude-cgroup", "exclude_cgroups", PATH_MAX - 1},
		[FILTER_CONTAINERS] = {"exclude-container", "exclude_containers",
			CGROUP_CONTAINER_MAX}},
};
const char *const filter_pids_options[FILTER_SIDES] = {"pid", "exclude-pid"};
const char *const filter_pids_keys[FILTER_SIDES] = {"pids", "exclude_pids"};

struct filter filter_of(const struct filter_options *o)
{
	struct filter f = {0};

	for (size_t s = 0; s < FILTER_SIDES; s++) {
		f.sides[s].pids = o->pids[s].u64;
		f.sides[s].pid_count = o->pids[s].count;
		for (size_t k = 0; k < FILTER_TEXTS; k++)
			f.sides[s].texts[k] = (struct filter_texts){
				.at = o->texts[s][k].str, .count = o->texts[s][k].count};
	}
	return f;
}

bool filter_is_any(const struct filter *f)
{
	for (size_t s = 0; s < FILTER_SIDES; s++) {
		if (f->sides[s].pid_count > 0)
			return true;
		for (size_t k = 0; k < FILTER_TEXTS; k++)
			if (f->sides[s].texts[k].count > 0)
				return true;
	}
	return false;
}

int filter_check(const struct filter *f, struct buf *why)
{
	for (size_t s = 0; s < FILTER_SIDES; s++) {
		const struct filter_texts *comms = &f->sides[s].texts[FILTER_COMMS];

		for (size_t i = 0; i < comms->count; i++) {
			size_t size = strlen(comms->at[i]);

			if (size > 0 && size <= FILTER_COMM_MAX)
				continue;
			(void)buf_printf(why,
				"comm '%.64s' must have 1..%d bytes: the kernel keeps no more of a "
				"process's name",
				comms->at[i], FILTER_COMM_MAX);
			return -EINVAL;
		}
	}
	return 0;
}

/* --- what has to be looked up */

static int uid_of(const char *user, struct buf *why, uint32_t *ret)
{
	char bytes[PASSWD_BYTES];
	struct passwd entry, *found = NULL;
	uint64_t uid;

	if (str_to_u64(user, 0, UINT32_MAX - 1, &uid) == 0) {
		*ret = (uint32_t)uid;
		return 0;
	}
	(void)getpwnam_r(user, &entry, bytes, sizeof(bytes), &found); /* fails: not found */
	if (!found) {
		(void)buf_printf(why, "user '%.64s' is not known here", user);
		return -ENOENT;
	}
	*ret = found->pw_uid;
	return 0;
}

static int resolve_users(
	const struct filter_texts *t, uint8_t value, struct buf *why, struct filter_resolved *r)
{
	int e = 0;

	for (size_t i = 0; e == 0 && i < t->count; i++) {
		if (r->uid_count == ARRAY_SIZE(r->uids))
			return -E2BIG;
		e = uid_of(t->at[i], why, &r->uids[r->uid_count]);
		r->uid_values[r->uid_count] = value;
		r->uid_count += e == 0;
	}
	return e;
}

static void add_cgroups(
	const struct cgroup_id *ids, size_t count, uint8_t value, struct filter_resolved *r)
{
	for (size_t i = 0; i < count; i++) {
		r->cgroups[r->cgroup_count] =
			(struct filter_cgroup){.id = ids[i].id, .is_v1 = ids[i].is_v1};
		r->cgroup_values[r->cgroup_count++] = value;
	}
}

static int resolve_cgroups(struct cgroups *c, const struct filter_list *l, uint8_t value,
	struct buf *why, struct filter_resolved *r)
{
	const struct filter_texts *paths = &l->texts[FILTER_CGROUPS];
	const struct filter_texts *containers = &l->texts[FILTER_CONTAINERS];
	_cleanup_(freep) struct cgroup_id *ids = calloc(FILTER_CGROUPS_MAX, sizeof(*ids));
	int e = ids ? 0 : -ENOMEM;

	for (size_t i = 0; e == 0 && i < paths->count; i++) {
		if (r->cgroup_count == FILTER_CGROUPS_MAX)
			return -E2BIG;
		e = cgroups_id(c, paths->at[i], why, ids);
		if (e == 0)
			add_cgroups(ids, 1, value, r);
	}
	for (size_t i = 0; e == 0 && i < containers->count; i++) {
		size_t found = 0;

		e = cgroups_containers(c, containers->at[i], FILTER_CGROUPS_MAX - r->cgroup_count,
			why, ids, &found);
		if (e == 0)
			add_cgroups(ids, found, value, r);
	}
	return e;
}

int filter_resolve(const struct filter *f, struct buf *why, struct filter_resolved *ret)
{
	static const uint8_t values[FILTER_SIDES] = {FILTER_ONLY, FILTER_EXCEPT};
	_cleanup_(cgroups_freep) struct cgroups *c = NULL;
	int e = 0;

	ret->cgroup_count = ret->uid_count = 0;
	ret->has_v1 = false;
	for (size_t s = 0; e == 0 && s < FILTER_SIDES; s++) {
		const struct filter_list *l = &f->sides[s];

		e = resolve_users(&l->texts[FILTER_USERS], values[s], why, ret);
		if (e < 0 ||
			l->texts[FILTER_CGROUPS].count + l->texts[FILTER_CONTAINERS].count == 0)
			continue;
		e = c ? 0 : cgroups_new(&c);
		if (e == 0)
			e = resolve_cgroups(c, l, values[s], why, ret);
	}
	if (e < 0 || !c || !*cgroups_v1_controller(c))
		return e;
	ret->has_v1 = true;
	return filter_find_subsys(cgroups_v1_controller(c), why, &ret->v1_subsys);
}

/* --- as JSON */

static void append_texts(struct buf *out, const char *key, const struct filter_texts *t)
{
	if (t->count == 0)
		return;
	(void)buf_printf(out, "%s\"%s\":[", out->size > 1 ? "," : "", key);
	for (size_t i = 0; i < t->count; i++) {
		(void)buf_append_str(out, i > 0 ? "," : "");
		(void)str_append_json(out, t->at[i]);
	}
	(void)buf_append_str(out, "]");
}

int filter_describe(const struct filter *f, struct buf *out)
{
	if (!filter_is_any(f))
		return buf_append_str(out, "");
	(void)buf_append_str(out, "{");
	for (size_t s = 0; s < FILTER_SIDES; s++) {
		const struct filter_list *l = &f->sides[s];

		if (l->pid_count > 0)
			(void)buf_printf(
				out, "%s\"%s\":[", out->size > 1 ? "," : "", filter_pids_keys[s]);
		for (size_t i = 0; i < l->pid_count; i++)
			(void)buf_printf(
				out, "%s%llu", i > 0 ? "," : "", (unsigned long long)l->pids[i]);
		if (l->pid_count > 0)
			(void)buf_append_str(out, "]");
		for (size_t k = 0; k < FILTER_TEXTS; k++)
			append_texts(out, filter_texts_names[s][k].key, &l->texts[k]);
	}
	return buf_append_str(out, "}");
}
