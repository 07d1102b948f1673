/*
 * pprof: files of other tools, round trips, limits, damage.
 */
#include "prof/pprof.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"
#include "base/file.h"
#include "base/rng.h"
#include "prof/gunzip.h"
#include "prof/profile_internal.h"
#include "prof/proto.h"
#include "prof/tree.h"
#include "random_profile.h"

static struct profile *read_fixture(const char *path)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(1 << 20);
	struct profile *p = NULL;

	cr_assert_eq(file_read(path, &in), 0);
	cr_assert_eq(pprof_read(in.data, in.size, 16 << 20, NULL, &p), 0);
	return p;
}

static int64_t total_of(const struct tree *t, const char *name)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < tree_count(t); i++) {
		uint32_t up = tree_at(t, i)->parent;

		if (strcmp(tree_name(t, i), name) != 0)
			continue;
		while (up && strcmp(tree_name(t, up), name) != 0)
			up = tree_at(t, up)->parent;
		if (!up)
			sum += tree_at(t, i)->total;
	}
	return sum;
}

static int64_t self_of(const struct tree *t, const char *name)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < tree_count(t); i++)
		sum += strcmp(tree_name(t, i), name) == 0 ? tree_at(t, i)->self : 0;
	return sum;
}

Test(pprof, a_go_profile_has_the_figures_of_go_tool_pprof)
{
	_cleanup_(profile_freep) struct profile *p = read_fixture("fixtures/prof/go_cpu.pb.gz");
	_cleanup_(tree_freep) struct tree *t = NULL;

	cr_assert_eq(profile_type_count(p), 2);
	cr_assert_str_eq(profile_text(p, profile_type_at(p, 1).unit), "nanoseconds");
	cr_assert_eq(profile_total(p, 1), 1470000000);
	cr_assert_eq(profile_period(p), 10000000);
	cr_assert_eq(tree_build(p, profile_default_type(p), false, &t), 0);
	/* go tool pprof -top -unit=ns: flat and cum */
	cr_assert_eq(self_of(t, "runtime.nanotime"), 240000000);
	cr_assert_eq(self_of(t, "fmt.(*fmt).fmtInteger"), 150000000);
	cr_assert_eq(total_of(t, "fmt.(*fmt).fmtInteger"), 270000000);
	cr_assert_eq(total_of(t, "fmt.(*pp).printArg"), 420000000);
	cr_assert_eq(total_of(t, "runtime.mallocgcTiny"), 300000000);
	cr_assert_eq(self_of(t, "runtime.nextFreeFast"), 60000000, "an inlined function");
}

Test(pprof, inlined_lines_become_frames_innermost_first)
{
	_cleanup_(profile_freep) struct profile *p = read_fixture("fixtures/prof/hostile.pb.gz");
	const struct frame *f;
	struct sample s;

	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, 3);
	f = profile_frame_at(p, s.frames[0]);
	cr_assert_str_eq(profile_text(p, f->name), "inlined<T>");
	cr_assert_str_eq(profile_text(p, f->file), "src.cc");
	cr_assert_str_eq(profile_text(p, f->module), "/usr/bin/cpu_split");
	cr_assert_eq(f->line, 20);
	cr_assert_eq(f->address, 0x402000);
	f = profile_frame_at(p, s.frames[1]);
	cr_assert_str_eq(profile_text(p, f->name), "caller;with;semicolons");
	cr_assert_str_eq(profile_text(p, profile_frame_at(p, s.frames[2])->name), "main");
}

Test(pprof, samples_labels_and_facts_of_a_foreign_file_are_kept)
{
	_cleanup_(profile_freep) struct profile *p = read_fixture("fixtures/prof/hostile.pb.gz");
	struct sample s;

	cr_assert_eq(profile_sample_count(p), 5, "two equal ones merged");
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.values[0], 8);
	cr_assert_eq(s.values[1], 80);
	cr_assert_eq(s.label_count, 2);
	cr_assert_str_eq(profile_sample_label(p, &s, "comm"), "split;ter");
	for (uint32_t i = 0; i < s.label_count; i++) {
		if (strcmp(profile_text(p, s.labels[i].key), "pid") == 0)
			cr_assert_eq(s.labels[i].num, 42);
	}
	cr_assert_eq(profile_fact_count(p), 2);
	cr_assert_str_eq(profile_fact(p, "event"), "cpu-clock");
	cr_assert_str_eq(profile_fact(p, "lost"), "0");
	cr_assert_eq(profile_start_ns(p), 1767225600000000000);
	cr_assert_eq(profile_duration_ns(p), 10000000000);
	cr_assert_eq(profile_period(p), 10101010);
	cr_assert_str_eq(profile_text(p, profile_period_type(p).type), "cpu");
}

static void deflated(const struct profile *p, struct buf *raw)
{
	_cleanup_(buf_done) struct buf zipped = BUF_INIT(16 << 20);

	cr_assert_eq(pprof_write(p, &zipped), 0);
	cr_assert_eq(memcmp(zipped.data + 4, "\0\0\0\0", 4), 0, "no time in the gzip header");
	cr_assert_eq(gunzip(zipped.data, zipped.size, raw), 0);
}

Test(pprof, writes_the_stored_message)
{
	_cleanup_(profile_freep) struct profile *p = read_fixture("fixtures/prof/hostile.pb.gz");
	_cleanup_(buf_done) struct buf want = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf got = BUF_INIT(1 << 20);

	cr_assert_eq(file_read("fixtures/prof/hostile_rewritten.pb", &want), 0);
	deflated(p, &got);
	cr_assert_eq(got.size, want.size);
	cr_assert_arr_eq(got.data, want.data, want.size);
}

static bool has_label(const struct profile *p, const struct sample *s, const struct profile *other,
	const struct label *l)
{
	for (uint32_t i = 0; i < s->label_count; i++) {
		if (s->labels[i].num == l->num &&
			strcmp(profile_text(p, s->labels[i].key), profile_text(other, l->key)) ==
				0 &&
			strcmp(profile_text(p, s->labels[i].str), profile_text(other, l->str)) == 0)
			return true;
	}
	return false;
}

/* Every field of two profiles, sample by sample. */
static void assert_same(const struct profile *a, const struct profile *b)
{
	struct sample x, y;

	cr_assert_eq(profile_type_count(a), profile_type_count(b));
	cr_assert_eq(profile_sample_count(a), profile_sample_count(b));
	cr_assert_eq(profile_start_ns(a), profile_start_ns(b));
	cr_assert_eq(profile_duration_ns(a), profile_duration_ns(b));
	cr_assert_eq(profile_period(a), profile_period(b));
	for (size_t i = 0; profile_sample_at(a, i, &x) && profile_sample_at(b, i, &y); i++) {
		cr_assert_eq(x.frame_count, y.frame_count);
		cr_assert_eq(x.label_count, y.label_count);
		for (uint32_t l = 0; l < x.label_count; l++)
			cr_assert(has_label(b, &y, a, &x.labels[l]));
		for (size_t t = 0; t < profile_type_count(a); t++)
			cr_assert_eq(x.values[t], y.values[t]);
		for (uint32_t j = 0; j < x.frame_count; j++) {
			const struct frame *f = profile_frame_at(a, x.frames[j]);
			const struct frame *g = profile_frame_at(b, y.frames[j]);

			cr_assert_str_eq(profile_text(a, f->name), profile_text(b, g->name));
			cr_assert_str_eq(profile_text(a, f->file), profile_text(b, g->file));
			cr_assert_str_eq(profile_text(a, f->module), profile_text(b, g->module));
			cr_assert_eq(f->kind, g->kind, "kind of %s in %s", profile_text(a, f->name),
				profile_text(a, f->module));
			cr_assert_eq(f->line, g->line);
			cr_assert_eq(f->address, g->address);
		}
	}
}

Test(pprof, a_round_trip_keeps_every_field_and_gives_the_same_bytes)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		_cleanup_(profile_freep) struct profile *p = random_profile(seed, 60), *q = NULL;
		_cleanup_(buf_done) struct buf one = BUF_INIT(16 << 20);
		_cleanup_(buf_done) struct buf two = BUF_INIT(16 << 20);
		const char *key, *value;

		cr_assert_eq(pprof_write(p, &one), 0);
		cr_assert_eq(pprof_read(one.data, one.size, 64 << 20, NULL, &q), 0);
		assert_same(p, q);
		cr_assert_eq(profile_fact_count(p), profile_fact_count(q));
		for (size_t i = 0; profile_fact_at(p, i, &key, &value); i++)
			cr_assert_str_eq(profile_fact(q, key), value);
		cr_assert_eq(pprof_write(q, &two), 0);
		cr_assert_eq(one.size, two.size, "seed %lu", seed);
		cr_assert_arr_eq(one.data, two.data, one.size, "seed %lu", seed);
	}
}

Test(pprof, an_empty_profile_survives)
{
	_cleanup_(profile_freep) struct profile *p = NULL, *q = NULL;
	_cleanup_(buf_done) struct buf out = BUF_INIT(1 << 20);

	cr_assert_eq(profile_new(1 << 20, &p), 0);
	cr_assert_eq(pprof_write(p, &out), 0);
	cr_assert_eq(pprof_read(out.data, out.size, 1 << 20, NULL, &q), 0);
	cr_assert_eq(profile_sample_count(q), 0);
}

Test(pprof, a_full_output_is_an_error)
{
	_cleanup_(profile_freep) struct profile *p = random_profile(3, 60);
	_cleanup_(buf_done) struct buf all = BUF_INIT(1 << 20);

	cr_assert_eq(pprof_write(p, &all), 0);
	for (size_t max = 0; max < all.size; max += 1 + all.size / 20) {
		_cleanup_(buf_done) struct buf out = BUF_INIT(max);

		cr_assert_eq(pprof_write(p, &out), -ENOBUFS, "max %zu", max);
	}
	all.size_max = all.size;
	buf_reset(&all);
	cr_assert_eq(pprof_write(p, &all), 0, "exactly enough room");
}

/* Messages for the tests of damage are put together field by field. */
static void put_message(struct buf *to, uint32_t field, const uint64_t *pairs, size_t count)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	for (size_t i = 0; i + 1 < count; i += 2)
		cr_assert_eq(proto_put_varint(&b, (uint32_t)pairs[i], pairs[i + 1]), 0);
	cr_assert_eq(proto_put_bytes(to, field, buf_str(&b), b.size), 0);
}
#define PUT(to, field, ...) \
	put_message(to, field, (uint64_t[]){__VA_ARGS__}, ARRAY_SIZE(((uint64_t[]){__VA_ARGS__})))

static void put_valid_head(struct buf *b)
{
	cr_assert_eq(proto_put_str(b, 6, ""), 0);
	cr_assert_eq(proto_put_str(b, 6, "count"), 0);
	PUT(b, 1, 1, 1, 2, 1);
}

static void assert_refused(const struct buf *b, const char *want)
{
	struct profile *p = NULL;
	const char *why = NULL;

	cr_assert_eq(pprof_read(b->data, b->size, 1 << 20, &why, &p), -EBADMSG, "%s", want);
	cr_assert_str_eq(why, want);
	cr_assert_null(p);
}

Test(pprof, dangling_and_doubled_ids_are_refused_with_a_reason)
{
	static const struct {
		uint32_t field;
		uint64_t pairs[6];
		size_t count;
		const char *why;
	} cases[] = {
		{2, {1, 9, 2, 1}, 4, "sample with an unknown location id"},
		{2, {1, 0, 2, 1}, 4, "a sample's values do not match the sample types"},
		{4, {1, 1, 2, 9}, 4, "location with an unknown mapping id"},
		{4, {3, 1}, 2, "location with id 0"},
		{3, {5, 1}, 2, "mapping with id 0"},
		{5, {2, 1}, 2, "function with id 0"},
		{1, {1, 99}, 2, "string index out of range"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

		put_valid_head(&b);
		if (i == 1)
			PUT(&b, 2, 3, 0); /* neither location nor value */
		else
			put_message(&b, cases[i].field, cases[i].pairs, cases[i].count);
		assert_refused(&b, cases[i].why);
	}
}

Test(pprof, doubled_ids_and_lines_without_function_are_refused)
{
	static const char *const twice[] = {[3] = "mapping id appears twice",
		[4] = "location id appears twice",
		[5] = "function id appears twice"};

	for (uint32_t field = 3; field <= 5; field++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

		put_valid_head(&b);
		PUT(&b, field, 1, 7);
		PUT(&b, field, 1, 7);
		assert_refused(&b, twice[field]);
	}
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	put_valid_head(&b);
	/* location { id: 1 line { function_id: 5 } } */
	cr_assert_eq(proto_put_bytes(&b, 4, "\x08\x01\x22\x02\x08\x05", 6), 0);
	assert_refused(&b, "line with an unknown function id");
}

Test(pprof, what_is_no_pprof_is_refused_with_a_reason)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	assert_refused(&b, "empty input");
	cr_assert_eq(buf_append_str(&b, "hello, world"), 0);
	assert_refused(&b, "not a protobuf message");
	buf_reset(&b);
	cr_assert_eq(buf_append(&b, "\x1f\x8b\x08\0nonsense", 12), 0);
	assert_refused(&b, "damaged gzip data");
	buf_reset(&b);
	cr_assert_eq(proto_put_str(&b, 6, "not empty"), 0);
	assert_refused(&b, "the first string is not empty");
	buf_reset(&b);
	PUT(&b, 2, 2, 1);
	assert_refused(&b, "samples without a sample type");
	buf_reset(&b);
	for (int i = 0; i < 9; i++)
		PUT(&b, 1, 3, 0);
	assert_refused(&b, "more than 8 sample types");
}

Test(pprof, no_prefix_and_no_flipped_byte_of_a_file_does_harm)
{
	_cleanup_(buf_done) struct buf zipped = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf raw = BUF_INIT(1 << 20);
	struct rng r = rng_seeded(7);

	cr_assert_eq(file_read("fixtures/prof/hostile.pb.gz", &zipped), 0);
	cr_assert_eq(gunzip(zipped.data, zipped.size, &raw), 0);
	for (size_t size = 1; size < zipped.size; size++) {
		struct profile *p = NULL;

		cr_assert_eq(pprof_read(zipped.data, size, 1 << 20, NULL, &p), -EBADMSG);
	}
	for (size_t i = 0; i < raw.size; i++) {
		_cleanup_(profile_freep) struct profile *p = NULL;
		char saved = raw.data[i];
		int e;

		raw.data[i] ^= (char)rng_between(&r, 1, 255);
		e = pprof_read(raw.data, raw.size, 1 << 20, NULL, &p);
		cr_assert(e == 0 || e == -EBADMSG, "byte %zu gives %d", i, e);
		cr_assert_eq(e == 0, p != NULL);
		raw.data[i] = saved;
	}
}

Test(pprof, a_gzip_bomb_stops_at_the_limit)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(4 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL, *q = NULL;
	_cleanup_(buf_done) struct buf zipped = BUF_INIT(4 << 20);
	const char *why = NULL;
	char name[64];
	uint32_t id;

	cr_assert_eq(profile_new(32 << 20, &p), 0);
	cr_assert_eq(profile_sample_type(p, "samples", "count"), 0);
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "a name like all the others %06d", i);
		id = (uint32_t)profile_frame(
			p, &(struct frame){.name = (uint32_t)profile_str(p, name)});
		cr_assert_eq(profile_add(p, &id, 1, NULL, 0, (int64_t[]){1}), 0);
	}
	cr_assert_eq(pprof_write(p, &zipped), 0);
	cr_assert_eq(pprof_read(zipped.data, zipped.size, 256 << 10, &why, &q), -EFBIG);
	cr_assert_str_eq(why, "inflates above the memory limit");
	cr_assert_eq(gunzip(zipped.data, zipped.size, &raw), 0);
	cr_assert_eq(pprof_read(raw.data, raw.size, 512 << 10, &why, &q), -ENOBUFS);
	cr_assert_str_eq(why, "too large for the memory limit");
	cr_assert_null(q);
}

Test(pprof, deep_stacks_are_cut_at_the_root_end)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	_cleanup_(buf_done) struct buf location = BUF_INIT(1 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct sample s;

	put_valid_head(&b);
	PUT(&b, 5, 1, 1, 2, 1);
	cr_assert_eq(proto_put_varint(&location, 1, 1), 0);
	for (int i = 1; i <= 3000; i++)
		cr_assert_eq(proto_put_bytes(&location, 4,
				     (uint8_t[]){0x08, 0x01, 0x10, (uint8_t)(i % 100)}, 4),
			0);
	cr_assert_eq(proto_put_bytes(&b, 4, location.data, location.size), 0);
	PUT(&b, 2, 1, 1, 1, 1, 2, 5);
	cr_assert_eq(pprof_read(b.data, b.size, 1 << 20, NULL, &p), 0);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.frame_count, PROFILE_DEPTH_MAX);
	cr_assert_eq(profile_frame_at(p, s.frames[0])->line, 1);
	cr_assert_str_eq(
		profile_text(p, profile_frame_at(p, s.frames[PROFILE_DEPTH_MAX - 1])->name),
		PROFILE_CUT_NAME);
}

Test(pprof, labels_above_the_limit_are_dropped_and_counted)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 16);
	_cleanup_(buf_done) struct buf sample = BUF_INIT(1 << 16);
	_cleanup_(profile_freep) struct profile *p = NULL;
	struct sample s;

	put_valid_head(&b);
	cr_assert_eq(proto_put_varint(&sample, 2, 5), 0);
	for (uint64_t i = 1; i <= PROFILE_LABELS_MAX + 3; i++)
		PUT(&sample, 3, 1, 1, 3, i);
	cr_assert_eq(proto_put_bytes(&b, 2, sample.data, sample.size), 0);
	cr_assert_eq(pprof_read(b.data, b.size, 1 << 20, NULL, &p), 0);
	cr_assert(profile_sample_at(p, 0, &s));
	cr_assert_eq(s.label_count, PROFILE_LABELS_MAX);
	cr_assert_str_eq(profile_fact(p, "read.labels_dropped"), "3");
}
