/*
 * What the tests of the keeper of unwind tables share: maps as the programs have them, misses said by
 * hand, and what a program would then find, by the path that bpf/table.h describes.
 */
#ifndef TESTS_AGENT_TABLES_FIXTURE_H
#define TESTS_AGENT_TABLES_FIXTURE_H

#include "agent/tables_internal.h"

enum { BUDGET_MB = 24 };

struct tables_fixture {
	struct tables_maps maps;
	struct helper *helper;
	struct tables *t;
	uint32_t *dirs;
	struct unwind_rule *rules;
	uint32_t *slab_used;
	struct process_key self;
};

struct tables_found {
	struct table_process process;
	struct table_mapping mapping;
	uint32_t dir; /* index of the directory entry; 0: the mapping has none for this pc */
	uint32_t ref;
	struct unwind_rule rule; /* when ref is a place */
	bool is_known, is_mapped;
};

struct tables_copy {
	char path[64];
	uint8_t *code; /* mapped executable segment; NULL: not mapped */
	size_t size;
};

uint64_t tables_fixture_start(pid_t pid);
struct process_key tables_fixture_key(pid_t pid);
void tables_fixture_again(struct tables_fixture *s, uint32_t budget_mb);
void tables_fixture_init(struct tables_fixture *s, uint32_t budget_mb);
void tables_fixture_done(struct tables_fixture *s);
struct tables_found tables_fixture_look_up(
	const struct tables_fixture *s, const struct process_key *key, uint64_t pc);
struct tables_found tables_fixture_find(
	struct tables_fixture *s, const struct process_key *key, uint64_t pc);
struct tables_stats tables_fixture_stats(const struct tables_fixture *s);
void tables_fixture_age_slabs(struct tables_fixture *s);
void tables_copy_make(struct tables_copy *c, int number);
void tables_copy_map(struct tables_copy *c);
void tables_copy_done(struct tables_copy *c);
void tables_fixture_expect_compiled(const struct tables_found *f, const char *path, uint64_t pc);

#endif
