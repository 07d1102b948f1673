/*
 * What is allowed to be unmeasured (lab/unmeasured.json), what things cost before
 * (lab/baselines.json), and the exit code that follows from a list of gates.
 *
 * unmeasured.json: { "schema": "flamelab-unmeasured/1", "gates": [
 *	{ "gate": "overhead_real", "scenario": "*" or a name, "platform": "exact"|"fast"|"host"|"any",
 *	  "reason": "...", "expiry": "YYYY-MM-DD" } ] }
 * baselines.json: { "schema": "flamelab-baselines/1", "baselines": [
 *	{ "gate": "unwind_cost", "scenario": "unwind_cost", "key": "...", "value": 1234, "why": "..." } ] }
 */
#ifndef LAB_POLICY_H
#define LAB_POLICY_H

#include <stdbool.h>
#include <stddef.h>

#include "lab/gate.h"
#include "lab/json.h"
#include "lab/vm.h"

enum policy_exit {
	POLICY_PASS = 0,
	POLICY_FAIL = 1,
	POLICY_USAGE = 2,
	POLICY_INFRASTRUCTURE = 3,
	POLICY_INCONCLUSIVE = 4,
	POLICY_SKIPPED = 77,
};

enum { POLICY_EXCUSES_MAX = 128, POLICY_BASELINES_MAX = 512, POLICY_KEY_MAX = 400 };

struct policy_excuse {
	enum gate_kind gate;
	const char *scenario, *platform, *reason, *expiry;
	bool used;
};

struct policy_baseline {
	enum gate_kind gate;
	const char *scenario, *key, *why;
	double value;
};

struct policy {
	struct json unmeasured, baselines;
	struct policy_excuse excuses[POLICY_EXCUSES_MAX];
	size_t excuse_count;
	struct policy_baseline items[POLICY_BASELINES_MAX];
	size_t item_count;
};

/* Reads both files of dir. 0; -EBADMSG or -errno, message in the document that failed. */
int policy_load(struct policy *p, const char *dir, const char **message);
int policy_parse_unmeasured(struct policy *p, const void *data, size_t size);
int policy_parse_baselines(struct policy *p, const void *data, size_t size);
void policy_done(struct policy *p); /* usable as cleanup attribute */

/*
 * Turns unmeasured platform gates that the list names into excused ones. today is "YYYY-MM-DD"; an
 * entry is good through its expiry day. A required gate is never excused.
 */
void policy_excuse(struct policy *p, struct gate_list *l, enum vm_mode platform, const char *today);

/* Does the entry speak of this scenario on this platform? */
bool policy_covers(const struct policy_excuse *e, const char *scenario, enum vm_mode platform);

/* The key that a baseline holds for: everything but the agent that moves the figure. */
void policy_key(const struct image_info *image, unsigned int shift, char ret[POLICY_KEY_MAX]);
/* NULL: no baseline for this key. */
const struct policy_baseline *policy_find(
	const struct policy *p, enum gate_kind gate, const char *scenario, const char *key);
/* The gates that have baselines, and in what unit the figures are. */
bool policy_has_baselines(enum gate_kind gate, const char **ret_unit);
/*
 * Judges value against the stored one: at most JUDGE_UNWIND_PART, JUDGE_INGESTION_PART above it. Where a figure
 * stands for the key the gate is required: nothing excuses that it was not measured.
 */
void policy_judge_baseline(const struct policy *p, struct gate *g, const char *key, bool drifted,
	bool known, double value);
/* Rewrites dir/baselines.json with one value moved or added. 0 or -errno. */
int policy_rebaseline(const struct policy *p, const char *dir, enum gate_kind gate,
	const char *scenario, const char *key, double value, const char *why);

struct policy_counts {
	size_t passed, failed, unmeasured, excused, infrastructure, skipped;
};
struct policy_counts policy_count(const struct gate_list *l);
/* A failed gate outranks broken infrastructure, which outranks missing data. */
enum policy_exit policy_exit_code(const struct policy_counts *c);

#endif
