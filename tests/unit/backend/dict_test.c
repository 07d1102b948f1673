/*
 * The dictionary: equal records get one id, for ever, whatever the cache holds; rolled-back ids are given again.
 */
#include "backend/dict.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "store_fixture.h"

#define SCRATCH_MAX ((size_t)64 << 20)

struct world {
	char dir[64];
	char path[80];
	struct dict *d;
	struct arena *scratch;
};

static void open_dict(struct world *w, size_t cache_bytes)
{
	const char *why = "";

	dict_close(w->d);
	w->d = NULL;
	cr_assert_eq(dict_open(w->path, cache_bytes, &why, &w->d), 0, "%s", why);
}

static void world_init(struct world *w)
{
	*w = (struct world){.dir = "/tmp/flame-dict-XXXXXX"};
	cr_assert(mkdtemp(w->dir));
	(void)snprintf(w->path, sizeof(w->path), "%s/dict.db", w->dir);
	w->scratch = arena_new(SCRATCH_MAX);
	open_dict(w, 0);
}

static void world_done(struct world *w)
{
	char path[128];

	dict_close(w->d);
	arena_free(w->scratch);
	(void)unlink(w->path);
	(void)snprintf(path, sizeof(path), "%s-wal", w->path);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s-shm", w->path);
	(void)unlink(path);
	cr_assert_eq(rmdir(w->dir), 0);
}

static uint64_t *intern(struct world *w, const struct profile *p)
{
	_cleanup_(buf_done) struct buf left_out = BUF_INIT(1024);
	uint64_t *ids = NULL;

	cr_assert_eq(dict_intern(w->d, p, w->scratch, &left_out, &ids), 0);
	return ids;
}

static void assert_same(const uint64_t *a, const uint64_t *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(a[i], b[i], "sample %zu: %llu and %llu", i, (unsigned long long)a[i],
			(unsigned long long)b[i]);
}

Test(dict, equal_stacks_have_one_id_also_after_a_restart)
{
	_cleanup_(profile_freep) struct profile *p = fixture_profile(3, 500, 0);
	size_t count = profile_sample_count(p);
	struct world w;
	uint64_t *first, stacks;

	world_init(&w);
	first = intern(&w, p);
	stacks = dict_count(w.d, DICT_STACK);
	assert_same(first, intern(&w, p), count);
	cr_assert_eq(dict_commit(w.d), 0);
	open_dict(&w, 0);
	assert_same(first, intern(&w, p), count);
	cr_assert_eq(dict_count(w.d, DICT_STACK), stacks);
	world_done(&w);
}

Test(dict, a_cache_too_small_for_anything_changes_no_id)
{
	_cleanup_(profile_freep) struct profile *p = fixture_profile(4, 500, 0);
	struct world w;
	uint64_t *first;

	world_init(&w);
	first = intern(&w, p);
	cr_assert_eq(dict_commit(w.d), 0);
	open_dict(&w, 20000);
	for (int i = 0; i < 3; i++)
		assert_same(first, intern(&w, p), profile_sample_count(p));
	world_done(&w);
}

Test(dict, ids_that_were_rolled_back_are_given_again)
{
	_cleanup_(profile_freep) struct profile *p = fixture_profile(5, 50, 0);
	struct world w;
	uint64_t *first;

	world_init(&w);
	first = intern(&w, p);
	cr_assert_gt(dict_count(w.d, DICT_STACK), 0);
	dict_rollback(w.d);
	cr_assert_eq(dict_count(w.d, DICT_STACK), 0);
	assert_same(first, intern(&w, p), profile_sample_count(p));
	cr_assert_eq(dict_commit(w.d), 0);
	open_dict(&w, 0);
	assert_same(first, intern(&w, p), profile_sample_count(p));
	world_done(&w);
}

Test(dict, the_reader_gives_back_frames_and_labels)
{
	_cleanup_(profile_freep) struct profile *p = fixture_profile(6, 30, 0);
	_cleanup_(profile_freep) struct profile *q = NULL;
	_cleanup_(dict_reader_closep) struct dict_reader *reader = NULL;
	int64_t value = 1;
	struct sample a, b;
	struct world w;
	uint64_t *ids;

	world_init(&w);
	ids = intern(&w, p);
	cr_assert_eq(dict_commit(w.d), 0);
	for (size_t i = 0; profile_sample_at(p, i, &a); i++) {
		_cleanup_(dict_reader_closep) struct dict_reader *one = NULL;
		_cleanup_(profile_freep) struct profile *out = NULL;

		cr_assert_eq(profile_new(SCRATCH_MAX, &out), 0);
		cr_assert_eq(profile_sample_type(out, "cpu", "nanoseconds"), 0);
		cr_assert_eq(dict_reader_open(w.path, out, &one), 0);
		cr_assert_eq(dict_reader_add(one, ids[i], &value), 0);
		cr_assert(profile_sample_at(out, 0, &b));
		cr_assert_eq(a.frame_count, b.frame_count);
		for (uint32_t k = 0; k < a.frame_count; k++)
			cr_assert_str_eq(profile_text(p, profile_frame_at(p, a.frames[k])->name),
				profile_text(out, profile_frame_at(out, b.frames[k])->name));
		cr_assert_str_eq(
			profile_sample_label(p, &a, "comm"), profile_sample_label(out, &b, "comm"));
	}
	cr_assert_eq(profile_new(SCRATCH_MAX, &q), 0);
	cr_assert_eq(profile_sample_type(q, "cpu", "nanoseconds"), 0);
	cr_assert_eq(dict_reader_open(w.path, q, &reader), 0);
	cr_assert_eq(dict_reader_add(reader, 1000000, &value), 0);
	cr_assert_eq(fixture_leaf(q, "[missing stack]"), 1);
	world_done(&w);
}

Test(dict, numbers_and_ids_of_calls_make_no_new_stacks)
{
	struct profile *p = NULL;
	struct world w;
	_cleanup_(buf_done) struct buf left_out = BUF_INIT(1024);
	uint64_t *ids = NULL;
	int64_t value = 1;
	uint32_t frame;

	world_init(&w);
	cr_assert_eq(profile_new(SCRATCH_MAX, &p), 0);
	cr_assert_eq(profile_sample_type(p, "cpu", "nanoseconds"), 0);
	struct frame f = {.name = (uint32_t)profile_str(p, "main")};
	frame = (uint32_t)profile_frame(p, &f);
	for (int i = 1; i <= 100; i++) {
		char text[16];
		struct label labels[2];

		(void)snprintf(text, sizeof(text), "span%d", i);
		labels[0] = (struct label){.key = (uint32_t)profile_str(p, "pid"), .num = i};
		labels[1] = (struct label){.key = (uint32_t)profile_str(p, "span_id"),
			.str = (uint32_t)profile_str(p, text)};
		cr_assert_eq(profile_add(p, &frame, 1, labels, 2, &value), 0);
	}
	cr_assert_eq(profile_sample_count(p), 100);
	cr_assert_eq(dict_intern(w.d, p, w.scratch, &left_out, &ids), 0);
	cr_assert_eq(dict_count(w.d, DICT_STACK), 1);
	cr_assert_str_eq(buf_str(&left_out), "pid,span_id");
	profile_free(p);
	world_done(&w);
}
