/*
 * Reads lab/scenarios/NAME.json (see scenario.h). The file's name is the scenario's name, so it
 * cannot disagree. Checks that span fields (exact mode has one CPU, a selftest has faults) come
 * after all fields have been read.
 */
#include "lab/scenario.h"

#include <dirent.h>
#include <errno.h>

#include "base/def.h"
#include "base/str.h"

static const char *const scenario_kinds[] = {
	"accuracy", "overhead", "perturb", "selftest", "invariants", "fleet", "matrix", NULL};
static const char *const scenario_modes[] = {"exact", "fast", "host", NULL};
static const char *const scenario_archs[] = {"x86_64", "arm64", NULL};
static const char *const scenario_kernels[] = {"image", "next", NULL};
static const char *const scenario_plays[] = {"loop", "dormant", "cycles", "faults", "answers",
	"spool", "ingest", "power_cut", "churn", NULL};
static const char *const gate_needs[] = {"", "required", "platform", NULL};

const char *scenario_kind_name(enum scenario_kind k)
{
	return (unsigned int)k < SCENARIO_KIND_COUNT ? scenario_kinds[k] : "?";
}

const char *scenario_mode_name(enum vm_mode m)
{
	return (unsigned int)m <= VM_HOST ? scenario_modes[m] : "?";
}

bool scenario_mode_parse(const char *text, enum vm_mode *ret)
{
	for (unsigned int i = 0; scenario_modes[i]; i++)
		if (strcmp(scenario_modes[i], text) == 0) {
			*ret = i;
			return true;
		}
	return false;
}

static bool scenario_name_ok(const char *s, size_t size_max)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return n > 0 && n <= size_max && s[n] == 0;
}

/* A name that stands in paths and in the job's text form. */
static const char *scenario_read_name(const struct json_at *at)
{
	const char *s = json_text(at, "", 1, 40);

	if (!json_failed(at->doc) && !scenario_name_ok(s, 40))
		json_fail(at, "\"%s\" may only have a-z, 0-9 and _", s);
	return s;
}

static void scenario_read_args(
	const struct json_at *parent, const char *name, struct scenario_args *ret)
{
	struct json_at at = json_field(parent, name), item;

	ret->count = json_array(&at, 0, SCENARIO_ARGS_MAX);
	for (size_t i = 0; i < ret->count; i++) {
		item = json_item(&at, i);
		ret->item[i] = json_text(&item, "", 0, 256);
		if (strchr(ret->item[i], '\n'))
			json_fail(&item, "must not contain a line break");
	}
}

static void scenario_read_workload(
	const struct json_at *at, const char **program, struct scenario_args *args)
{
	static const char *const names[] = {"program", "args", NULL};
	struct json_at field;

	if (!json_object(at, names))
		return;
	field = json_need(at, "program");
	*program = scenario_read_name(&field);
	scenario_read_args(at, "args", args);
}

static void scenario_read_beside(const struct json_at *root, struct scenario *s)
{
	struct json_at at = json_field(root, "beside"), item;

	s->beside.count = json_array(&at, 0, JOB_BESIDE_MAX - 1);
	for (size_t i = 0; i < s->beside.count; i++) {
		item = json_item(&at, i);
		s->beside.item[i] = scenario_read_name(&item);
	}
}

static void scenario_read_names(
	const struct json_at *root, const char *name, struct scenario_names *ret)
{
	struct json_at at = json_field(root, name), item;

	ret->count = json_array(&at, 0, SCENARIO_NAMES_MAX);
	for (size_t i = 0; i < ret->count; i++) {
		item = json_item(&at, i);
		ret->item[i] = json_text(&item, "", 1, 256);
	}
}

static void scenario_read_programs(const struct json_at *root, struct scenario *s)
{
	struct json_at at = json_need(root, "programs"), item;

	s->program_count = json_array(&at, 1, SCENARIO_PROGRAMS_MAX);
	for (size_t i = 0; i < s->program_count; i++) {
		item = json_item(&at, i);
		scenario_read_workload(&item, &s->programs[i].program, &s->programs[i].args);
	}
}

static void scenario_read_agent(const struct json_at *at, struct scenario *s)
{
	static const char *const names[] = {"frequency_hz", "jitter_seeds", "args", NULL};
	struct json_at field, item;

	if (!json_object(at, names))
		return;
	field = json_need(at, "frequency_hz");
	s->frequency_hz = json_u64(&field, 0, 1, 10000);
	field = json_need(at, "jitter_seeds");
	s->seed_count = json_array(&field, 1, SCENARIO_SEEDS_MAX);
	for (size_t i = 0; i < s->seed_count; i++) {
		item = json_item(&field, i);
		s->seeds[i] = json_u64(&item, 0, 1, UINT32_MAX);
		for (size_t k = 0; k < i; k++)
			if (s->seeds[k] == s->seeds[i])
				json_fail(&item, "is the same seed as [%zu]", k);
	}
	scenario_read_args(at, "args", &s->agent_args);
}

static void scenario_read_expect(const struct json_at *at, struct scenario_expect *e)
{
	static const char *const names[] = {"function", "callers", "leaf", "container", NULL};
	struct json_at field, item;

	if (!json_object(at, names))
		return;
	field = json_need(at, "function");
	e->name = json_text(&field, "", 1, 512);
	field = json_field(at, "leaf");
	e->leaf = json_bool(&field, false);
	field = json_field(at, "container");
	e->container = json_text(&field, NULL, 0, 64);
	field = json_field(at, "callers");
	e->caller_count = json_array(&field, 0, SCENARIO_CALLERS_MAX);
	for (size_t i = 0; i < e->caller_count; i++) {
		item = json_item(&field, i);
		e->callers[i] = json_text(&item, "", 1, 512);
	}
}

static void scenario_read_forbid(const struct json_at *at, struct scenario_forbid *f)
{
	static const char *const names[] = {"frame", "share_max", NULL};
	struct json_at field;

	if (!json_object(at, names))
		return;
	field = json_need(at, "frame");
	f->frame = json_text(&field, "", 1, 512);
	field = json_need(at, "share_max");
	f->share_max = json_f64(&field, 0, 0, 0.5);
}

/* An array of gate names as a set. */
static void scenario_read_gate_set(
	const struct json_at *parent, const char *name, bool ret[GATE_KIND_COUNT])
{
	struct json_at at = json_field(parent, name), item;
	size_t n = json_array(&at, 0, GATE_KIND_COUNT);

	for (size_t i = 0; i < n; i++) {
		enum gate_kind k = GATE_SHARE;
		const char *text;

		item = json_item(&at, i);
		text = json_text(&item, "", 1, 64);
		if (json_failed(at.doc))
			return;
		if (!gate_kind_parse(text, &k))
			json_fail(&item, "\"%s\" is not a gate", text);
		ret[k] = true;
	}
}

/* Faults, and glibc's tunables (a heap without its per-thread caches shows a leak to the byte). */
static void scenario_check_env(const struct json_at *at, const char *env)
{
	bool known = str_has_prefix(env, "FLAME_FAULT") || str_has_prefix(env, "GLIBC_TUNABLES=");

	if (!json_failed(at->doc) && (!known || !strchr(env, '=') || strchr(env, '\n')))
		json_fail(at, "must be FLAME_FAULT...=VALUE or GLIBC_TUNABLES=VALUE in one line");
}

static size_t scenario_read_env(
	const struct json_at *fault, const char *name, const char *ret[SCENARIO_FAULT_ENV_MAX])
{
	struct json_at at = json_field(fault, name), item;
	size_t n = json_array(&at, 0, SCENARIO_FAULT_ENV_MAX);

	for (size_t i = 0; i < n; i++) {
		item = json_item(&at, i);
		ret[i] = json_text(&item, "", 3, 200);
		scenario_check_env(&item, ret[i]);
	}
	return n;
}

static void scenario_read_fault(const struct json_at *at, struct scenario_fault *f)
{
	static const char *const names[] = {"name", "workload", "agent_args", "env", "agent_env",
		"play", "truth_points", "boot", "use", "compare", "red", "green", NULL};
	struct json_at field;

	if (!json_object(at, names))
		return;
	field = json_need(at, "name");
	f->name = scenario_read_name(&field);
	field = json_field(at, "workload");
	if (json_present(&field))
		scenario_read_workload(&field, &f->workload, &f->workload_args);
	scenario_read_args(at, "agent_args", &f->agent_args);
	f->env_count = scenario_read_env(at, "env", f->env);
	f->agent_env_count = scenario_read_env(at, "agent_env", f->agent_env);
	field = json_field(at, "play");
	if (json_present(&field))
		f->play = scenario_plays[json_choice(&field, 0, scenario_plays)];
	field = json_field(at, "truth_points");
	f->truth_points = json_f64(&field, 0, 0, 50);
	field = json_field(at, "compare");
	f->compare = json_text(&field, NULL, 1, 40);
	field = json_field(at, "boot");
	f->boot = json_u64(&field, 0, 0, 7);
	field = json_field(at, "use");
	f->use = json_text(&field, NULL, 1, 40);
	scenario_read_gate_set(at, "red", f->red);
	scenario_read_gate_set(at, "green", f->green);
	for (unsigned int k = 0; k < GATE_KIND_COUNT; k++)
		if (f->red[k] && f->green[k])
			json_fail(at, "gate %s cannot be red and green", gate_kind_name(k));
}

static void scenario_read_runs(const struct json_at *at, struct scenario *s)
{
	static const char *const names[] = {"smoke", "full", NULL};
	struct json_at field;

	if (!json_present(at) || !json_object(at, names))
		return;
	field = json_need(at, "smoke");
	s->runs_smoke = json_u64(&field, 1, 1, SCENARIO_RUNS_MAX);
	field = json_need(at, "full");
	s->runs_full = json_u64(&field, 1, 1, SCENARIO_RUNS_MAX);
}

static void scenario_read_gates(const struct json_at *at, struct scenario *s)
{
	struct json_at field;
	const char *name;
	size_t i = 0;

	if (!json_open_object(at))
		return;
	while (json_next_field(at, &i, &field, &name)) {
		enum gate_kind k = GATE_SHARE;

		if (!gate_kind_parse(name, &k)) {
			json_fail(&field, "is not a gate");
			return;
		}
		if (s->need[k] != GATE_ABSENT)
			json_fail(&field, "stands there twice");
		s->need[k] = (enum gate_need)json_choice(&field, GATE_REQUIRED, gate_needs);
	}
	if (i == 0)
		json_fail(at, "has no gate; a scenario that cannot fail proves nothing");
}

static void scenario_read_play(const struct json_at *root, struct scenario *s)
{
	struct json_at at = json_field(root, "play");

	if (json_present(&at))
		s->play = scenario_plays[json_choice(&at, 0, scenario_plays)];
	if (s->kind == SCENARIO_FLEET && !s->play)
		json_fail(&at, "is missing, a fleet scenario needs it");
	if (s->kind != SCENARIO_FLEET && s->kind != SCENARIO_SELFTEST && s->play)
		json_fail(&at, "only a fleet or selftest scenario has one");
}

static void scenario_read_machine(const struct json_at *root, struct scenario *s)
{
	static const char *const suites[] = {"smoke", "full", NULL};
	struct json_at field, item;
	size_t n;

	field = json_need(root, "suites");
	n = json_array(&field, 1, 2);
	for (size_t i = 0; i < n; i++) {
		item = json_item(&field, i);
		s->smoke |= json_choice(&item, 1, suites) == 0;
	}
	field = json_need(root, "mode");
	s->mode = (enum vm_mode)json_choice(&field, 0, scenario_modes);
	field = json_field(root, "arch");
	if (json_present(&field))
		s->arch = (enum vm_arch)json_choice(&field, 0, scenario_archs);
	field = json_field(root, "kernel");
	if (json_present(&field))
		s->next_kernel = json_choice(&field, 0, scenario_kernels) == 1;
	if (s->next_kernel && s->arch != VM_X86_64)
		json_fail(&field, "only x86_64 has another kernel");
	field = json_field(root, "shift");
	s->shift = (unsigned int)json_u64(&field, 1, 0, 10);
	field = json_field(root, "cpus");
	s->cpus = (unsigned int)json_u64(&field, 1, 1, 8);
	field = json_field(root, "memory_mb");
	s->memory_mb = (unsigned int)json_u64(&field, 1024, 256, 8192);
	field = json_field(root, "boots");
	s->boots = json_u64(&field, 1, 1, 8);
	field = json_field(root, "repeat");
	s->repeat = json_u64(&field, 1, 1, 8);
	field = json_need(root, "step_timeout_s");
	s->step_timeout_s = json_u64(&field, 60, 1, 3600);
	field = json_need(root, "cost_s");
	s->cost_s = json_f64(&field, 0, 0, 3600);
	field = json_field(root, "runs");
	scenario_read_runs(&field, s);
}

static int scenario_read_lists(const struct json_at *root, struct scenario *s)
{
	struct json_at field, item;

	field = json_field(root, "expect");
	s->expect_count = json_array(&field, 0, SCENARIO_EXPECT_MAX);
	for (size_t i = 0; i < s->expect_count; i++) {
		item = json_item(&field, i);
		scenario_read_expect(&item, &s->expect[i]);
	}
	field = json_field(root, "forbid");
	s->forbid_count = json_array(&field, 0, SCENARIO_EXPECT_MAX);
	for (size_t i = 0; i < s->forbid_count; i++) {
		item = json_item(&field, i);
		scenario_read_forbid(&item, &s->forbid[i]);
	}
	field = json_field(root, "faults");
	s->fault_count = json_array(&field, 0, SCENARIO_FAULTS_MAX);
	s->faults = calloc(s->fault_count + 1, sizeof(*s->faults));
	if (!s->faults)
		return -ENOMEM;
	for (size_t i = 0; i < s->fault_count; i++) {
		item = json_item(&field, i);
		scenario_read_fault(&item, &s->faults[i]);
		for (size_t k = 0; k < i && !json_failed(root->doc); k++)
			if (s->faults[k].name && s->faults[i].name &&
				strcmp(s->faults[k].name, s->faults[i].name) == 0)
				json_fail(&item, "name \"%s\" is used twice", s->faults[i].name);
	}
	return 0;
}

size_t scenario_fault_find(const struct scenario *s, const char *name)
{
	size_t i = 0;

	while (i < s->fault_count && (!s->faults[i].name || strcmp(s->faults[i].name, name) != 0))
		i++;
	return i;
}

/* What no single field can know. */
static void scenario_check(const struct json_at *root, const struct scenario *s)
{
	struct json_at at = json_field(root, "cpus");

	/* What follows relies on fields that a failed reading left empty. */
	if (json_failed(root->doc))
		return;
	if (s->mode == VM_EXACT && s->cpus != 1)
		json_fail(&at, "exact mode has one CPU (icount hangs with more)");
	at = json_field(root, "runs");
	if (s->kind == SCENARIO_PERTURB && !s->runs_full)
		json_fail(&at, "is missing, a perturb scenario needs it");
	if (s->kind != SCENARIO_PERTURB && s->kind != SCENARIO_FLEET && s->runs_full)
		json_fail(&at, "only a perturb or fleet scenario has runs");
	at = json_field(root, "faults");
	if (s->kind == SCENARIO_SELFTEST && !s->fault_count)
		json_fail(&at, "is missing, a selftest scenario needs it");
	if (s->kind != SCENARIO_SELFTEST && s->fault_count)
		json_fail(&at, "only a selftest scenario has faults");
	at = json_field(root, s->kind == SCENARIO_MATRIX ? "workload" : "programs");
	if (json_present(&at))
		json_fail(&at, "a matrix scenario has programs, any other one workload");
	at = json_field(root, "expect");
	if ((s->need[GATE_SHARE] || s->need[GATE_SHARE_POOLED] || s->need[GATE_PATH]) &&
		!s->expect_count && s->kind != SCENARIO_MATRIX)
		json_fail(&at, "is missing, gates share and path need it");
	if (s->kind == SCENARIO_MATRIX && s->expect_count)
		json_fail(&at, "a matrix expects what each program's truth says");
	at = json_field(root, "forbid");
	if (s->need[GATE_FORBIDDEN] && !s->forbid_count)
		json_fail(&at, "is missing, gate forbidden needs it");
	at = json_field(root, "repeat");
	if (s->need[GATE_SAME_TWICE] && s->repeat < 2)
		json_fail(&at, "must be 2 or more, gate same_twice compares");
	for (size_t i = 0; i < s->fault_count; i++) {
		const struct scenario_fault *f = &s->faults[i];

		at = json_field(root, "faults");
		at = json_item(&at, i);
		if (f->boot >= s->boots)
			json_fail(&at, "boot %llu, but boots is %llu", (unsigned long long)f->boot,
				(unsigned long long)s->boots);
		if (!s->play && (f->play || f->agent_env_count))
			json_fail(&at, "play and agent_env need a scenario with a play");
		if (f->compare && scenario_fault_find(s, f->compare) >= s->fault_count)
			json_fail(&at, "compare \"%s\" is no fault's name", f->compare);
		if (f->use && scenario_fault_find(s, f->use) >= i)
			json_fail(&at, "use \"%s\" is no earlier fault's name", f->use);
	}
}

static int scenario_finish(struct scenario *s)
{
	static const char *const names[] = {"why", "kind", "suites", "mode", "arch", "shift",
		"cpus", "memory_mb", "workload", "agent", "play", "runs", "boots", "repeat",
		"kernel", "beside", "family", "foreign", "stripped", "step_timeout_s", "cost_s",
		"expect", "forbid", "faults", "programs", "gates", NULL};
	struct json_at root = json_root(&s->doc), field;
	int r;

	if (!json_object(&root, names))
		return -EBADMSG;
	field = json_need(&root, "why");
	s->why = json_text(&field, "", 20, 600);
	field = json_need(&root, "kind");
	s->kind = (enum scenario_kind)json_choice(&field, 0, scenario_kinds);
	scenario_read_machine(&root, s);
	if (s->kind == SCENARIO_MATRIX) {
		scenario_read_programs(&root, s);
	} else {
		field = json_need(&root, "workload");
		scenario_read_workload(&field, &s->workload, &s->workload_args);
	}
	scenario_read_beside(&root, s);
	field = json_field(&root, "family");
	s->family = json_bool(&field, false);
	scenario_read_names(&root, "foreign", &s->foreign);
	scenario_read_names(&root, "stripped", &s->stripped);
	field = json_need(&root, "agent");
	scenario_read_agent(&field, s);
	scenario_read_play(&root, s);
	r = scenario_read_lists(&root, s);
	if (r < 0) {
		json_fail(&root, "%s", strerror(-r));
		return r;
	}
	field = json_need(&root, "gates");
	scenario_read_gates(&field, s);
	scenario_check(&root, s);
	return json_failed(&s->doc) ? -EBADMSG : 0;
}

/* The scenario's name out of its file's; kept in the document's file text. */
static int scenario_set_name(struct scenario *s)
{
	struct json_at at = {.doc = &s->doc};
	const char *slash = strrchr(s->doc.file, '/');
	char *copy = strdup(slash ? slash + 1 : s->doc.file);

	if (!copy)
		return -ENOMEM;
	if (str_has_suffix(copy, ".json"))
		copy[strlen(copy) - 5] = 0;
	s->name = copy;
	if (!scenario_name_ok(copy, 40)) {
		json_fail(&at, "the file's name may only have a-z, 0-9 and _, at most 40");
		return -EBADMSG;
	}
	return 0;
}

int scenario_parse(struct scenario *s, const char *file, const void *data, size_t size)
{
	int r;

	*s = (struct scenario){0};
	r = json_parse(&s->doc, file, data, size);
	if (r == 0)
		r = scenario_set_name(s);
	return r < 0 ? r : scenario_finish(s);
}

int scenario_load(struct scenario *s, const char *path)
{
	int r;

	*s = (struct scenario){0};
	r = json_load(&s->doc, path);
	if (r == 0)
		r = scenario_set_name(s);
	return r < 0 ? r : scenario_finish(s);
}

void scenario_done(struct scenario *s)
{
	if (!s)
		return;
	json_done(&s->doc);
	free((char *)s->name);
	free(s->faults);
	*s = (struct scenario){0};
}
