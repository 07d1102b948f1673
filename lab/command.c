/*
 * The subcommands: options in, scenarios chosen, a campaign run or reloaded, reports written. Errors
 * are logged here and become exit codes; nothing below prints.
 */
#include "lab/command.h"

#include <errno.h>

#include "base/def.h"
#include "base/log.h"
#include "base/opts.h"
#include "base/str.h"
#include "lab/campaign.h"
#include "lab/report.h"

struct command_options {
	int suite, mode;
	uint64_t repeat, at_once, runs;
	bool keep, quiet, cost, color;
	const char *why, *output;
};

#define OPTION_OUTPUT                                                             \
	{                                                                         \
		"output", 'o', OPT_STR, offsetof(struct command_options, output), \
			.arg = "DIR", .help = "where results go (build/lab)"      \
	}

#define OPTION_COMMON                                                                             \
	{"mode", 'm', OPT_ENUM, offsetof(struct command_options, mode), .arg = "MODE",            \
		.def = "scenario", .choices = "scenario|exact|fast|host",                         \
		.help = "exact: QEMU counting instructions; fast: KVM or plain QEMU;\n"           \
			"host: this kernel, no VM; scenario: what each scenario asks for"},       \
		{"jobs", 'j', OPT_U64, offsetof(struct command_options, at_once), .arg = "N",     \
			.def = "2", .min = 1, .max = BOOTS_AT_ONCE_MAX, .help = "VMs at a time"}, \
		{"keep", 'k', OPT_FLAG, offsetof(struct command_options, keep),                   \
			.help = "leave the VMs' scratch files and say where they are"},           \
		OPTION_OUTPUT,                                                                    \
	{                                                                                         \
		"quiet", 'q', OPT_FLAG, offsetof(struct command_options, quiet),                  \
			.help = "no progress"                                                     \
	}

static const struct opt_spec run_specs[] = {
	{"suite", 's', OPT_ENUM, offsetof(struct command_options, suite), .arg = "SUITE",
		.def = "smoke", .choices = "smoke|full",
		.help = "which scenarios when none is named; full has the longer variants"},
	{"repeat", 'r', OPT_U64, offsetof(struct command_options, repeat), .arg = "N", .def = "1",
		.min = 1, .max = 100,
		.help = "run every scenario N times; in exact mode all must be identical"},
	OPTION_COMMON,
	{0},
};
static const struct opt_spec perturb_specs[] = {
	{"runs", 'n', OPT_U64, offsetof(struct command_options, runs), .arg = "N", .def = "20",
		.min = 1, .max = SCENARIO_RUNS_MAX,
		.help = "recordings that differ in seed, start offset, environment"},
	OPTION_COMMON,
	{0},
};
static const struct opt_spec selftest_specs[] = {OPTION_COMMON, {0}};
static const struct opt_spec list_specs[] = {
	{"cost", 'c', OPT_FLAG, offsetof(struct command_options, cost),
		.help = "add busy guest seconds, which cost 1 to 3 real ones each"},
	{0},
};
static const struct opt_spec rebaseline_specs[] = {
	{"why", 'w', OPT_STR, offsetof(struct command_options, why), .arg = "TEXT",
		.help = "what changed; stands beside the figure for ever"},
	OPTION_OUTPUT,
	{0},
};
static const struct opt_spec report_specs[] = {OPTION_OUTPUT, {0}};
static const struct opt_spec plain_specs[] = {{0}};

/* Everything a subcommand needs, opened in one go. */
struct command {
	struct opts opts;
	struct command_options o;
	int operands;
	struct campaign_place place;
	struct scenario_list scenarios;
};

static void command_done(struct command *c)
{
	scenario_list_done(&c->scenarios);
	opts_done(&c->opts);
}

/* -1: go on; else the exit code to leave with. */
static int command_open(
	struct command *c, const struct opt_spec *specs, const char *usage, int argc, char **argv)
{
	_cleanup_(buf_done) struct buf help = BUF_INIT(65536);
	char dir[600];
	int r;

	*c = (struct command){0};
	r = opts_init(&c->opts, specs, &c->o);
	if (r == 0)
		r = opts_parse_argv(&c->opts, argc, argv, &c->operands);
	if (r == 1) {
		(void)opts_help(specs, &help); /* fits */
		(void)printf("Usage: flamelab %s\n%s", usage, buf_str(&help));
		return POLICY_PASS;
	}
	if (r < 0) {
		(void)fprintf(stderr, "flamelab %s: %s\n", argv[0],
			c->opts.message.size ? buf_str(&c->opts.message) : strerror(-r));
		return POLICY_USAGE;
	}
	r = campaign_place_find(&c->place);
	if (r < 0) {
		log_error("lab", "find the source tree", r, "hint=\"run build/flamelab in place\"");
		return POLICY_INFRASTRUCTURE;
	}
	if (c->o.output)
		(void)snprintf(c->place.out, sizeof(c->place.out), "%.500s", c->o.output);
	(void)snprintf(dir, sizeof(dir), "%s/lab/scenarios", c->place.source);
	if (scenario_list_load(&c->scenarios, dir) < 0) {
		(void)fprintf(stderr, "flamelab: %s\n", c->scenarios.message);
		return POLICY_USAGE;
	}
	return -1;
}

static int command_refuse_operands(const struct command *c, int argc, char **argv)
{
	if (c->operands >= argc)
		return -1;
	(void)fprintf(
		stderr, "flamelab %s: unexpected argument '%s'\n", argv[0], argv[c->operands]);
	return POLICY_USAGE;
}

int command_list(int argc, char **argv)
{
	_cleanup_(command_done) struct command c;
	double sum = 0;
	int code = command_open(&c, list_specs, "list [--cost]", argc, argv);

	if (code < 0)
		code = command_refuse_operands(&c, argc, argv);
	if (code >= 0)
		return code;
	for (size_t i = 0; i < c.scenarios.count; i++) {
		const struct scenario *s = &c.scenarios.items[i];

		(void)printf("%-14s %-11s %-6s %-6s", s->name, scenario_kind_name(s->kind),
			scenario_mode_name(s->mode), s->smoke ? "smoke" : "full");
		if (c.o.cost)
			(void)printf(" %7.1f s", s->cost_s);
		(void)printf("  %.90s%s\n", s->why, strlen(s->why) > 90 ? "..." : "");
		sum += s->smoke ? s->cost_s : 0;
	}
	if (c.o.cost)
		(void)printf("suite smoke: %.1f busy guest seconds\n", sum);
	return POLICY_PASS;
}

/* Reports, the table on stdout, and the exit code. */
static int command_finish(struct campaign *c, bool write)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(4 << 20);
	const char *which = "";
	bool color = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	int r = 0;

	(void)report_text(c, color, &out); /* what fits is printed */
	if (write)
		r = report_write_all(c, &which);
	if (r < 0)
		log_error("lab", "write report", r, "file=%s", which);
	if (write && r == 0) {
		r = report_plots(c);
		if (r != 0)
			(void)buf_printf(&out, "plots: skipped, %s\n",
				r == 1 ? "gnuplot is not installed" : strerror(-r));
		(void)buf_printf(&out, "report: %s/report.html\n", c->place.out);
		r = 0;
	}
	(void)report_failures(c, &out);
	(void)report_last_line(&c->counts, &out);
	(void)fputs(buf_str(&out), stdout);
	if (fflush(stdout) != 0 || r < 0)
		return POLICY_INFRASTRUCTURE;
	return policy_exit_code(&c->counts);
}

static int command_fail(const struct campaign *c, int error)
{
	(void)fprintf(stderr, "flamelab: %s\n", c->error);
	return error == -EBADMSG ? POLICY_USAGE : POLICY_INFRASTRUCTURE;
}

/* The scenarios of the request, in the list's order. False when a name is unknown. */
static bool command_choose(
	struct command *c, const struct command_request *q, struct scenario **ret, size_t *count)
{
	*count = 0;
	for (size_t i = 0; i < q->name_count; i++)
		if (!scenario_find(&c->scenarios, q->names[i])) {
			(void)fprintf(stderr,
				"flamelab: no scenario '%s'; `flamelab list` shows them\n",
				q->names[i]);
			return false;
		}
	for (size_t i = 0; i < c->scenarios.count; i++) {
		struct scenario *s = &c->scenarios.items[i];
		bool chosen = !q->name_count && (s->smoke || q->full);

		for (size_t k = 0; k < q->name_count; k++)
			chosen |= strcmp(q->names[k], s->name) == 0;
		if (chosen)
			ret[(*count)++] = s;
	}
	return true;
}

/* Runs (or reloads) and judges what is asked for. *c is to be closed by the caller. -1: go on. */
static int command_campaign(
	struct command *cmd, const struct command_request *q, bool reload, struct campaign *c)
{
	struct scenario *chosen[SCENARIO_COUNT_MAX];
	struct campaign_options o = {.plan = {.has_mode = q->mode > 0,
					     .mode = (enum vm_mode)(q->mode > 0 ? q->mode - 1 : 0),
					     .full = q->full,
					     .repeat = q->repeat,
					     .runs = q->runs},
		.keep = q->keep,
		.quiet = q->quiet,
		.at_once = (unsigned int)q->at_once};
	size_t count;
	int r;

	if (!command_choose(cmd, q, chosen, &count))
		return POLICY_USAGE;
	r = campaign_init(c, &cmd->place, &o);
	if (r == 0)
		r = campaign_plan(c, chosen, count);
	if (r == 0)
		r = reload ? campaign_reload(c) : campaign_run(c);
	if (r == 0 && !reload)
		r = command_request_save(q, c->place.out);
	if (r == 0)
		r = campaign_judge(c);
	if (r < 0 && !c->error[0])
		(void)snprintf(c->error, sizeof(c->error), "%s", strerror(-r));
	return r < 0 ? command_fail(c, r) : -1;
}

static int command_run_request(struct command *cmd, struct command_request *q)
{
	_cleanup_(campaign_done) struct campaign c = {0};
	int code;

	q->mode = cmd->o.mode;
	q->keep = cmd->o.keep;
	q->quiet = cmd->o.quiet;
	q->at_once = cmd->o.at_once;
	code = command_campaign(cmd, q, false, &c);
	return code >= 0 ? code : command_finish(&c, true);
}

/* All scenarios of one kind, for the commands that are named after it. */
static void command_names(struct command *c, enum scenario_kind kind, struct command_request *q)
{
	for (size_t i = 0; i < c->scenarios.count && q->name_count < ARRAY_SIZE(q->names); i++)
		if (c->scenarios.items[i].kind == kind)
			q->names[q->name_count++] = c->scenarios.items[i].name;
}

int command_run(int argc, char **argv)
{
	_cleanup_(command_done) struct command c;
	struct command_request q = {0};
	int code = command_open(&c, run_specs, "run [OPTION]... [SCENARIO]...", argc, argv);

	if (code >= 0)
		return code;
	q.full = c.o.suite == 1;
	q.repeat = c.o.repeat;
	for (int i = c.operands; i < argc && q.name_count < ARRAY_SIZE(q.names); i++)
		q.names[q.name_count++] = argv[i];
	return command_run_request(&c, &q);
}

int command_selftest(int argc, char **argv)
{
	_cleanup_(command_done) struct command c;
	struct command_request q = {0};
	int code = command_open(&c, selftest_specs, "selftest [OPTION]...", argc, argv);

	if (code < 0)
		code = command_refuse_operands(&c, argc, argv);
	if (code >= 0)
		return code;
	command_names(&c, SCENARIO_SELFTEST, &q);
	return command_run_request(&c, &q);
}

int command_perturb(int argc, char **argv)
{
	_cleanup_(command_done) struct command c;
	struct command_request q = {0};
	int code = command_open(&c, perturb_specs, "perturb [OPTION]...", argc, argv);

	if (code < 0)
		code = command_refuse_operands(&c, argc, argv);
	if (code >= 0)
		return code;
	q.runs = c.o.runs;
	command_names(&c, SCENARIO_PERTURB, &q);
	return command_run_request(&c, &q);
}

int command_report(int argc, char **argv)
{
	_cleanup_(command_done) struct command cmd;
	_cleanup_(campaign_done) struct campaign c = {0};
	_cleanup_(json_done) struct json j = {0};
	struct command_request q = {.quiet = true};
	int code = command_open(&cmd, report_specs, "report [--output DIR]", argc, argv);

	if (code < 0)
		code = command_refuse_operands(&cmd, argc, argv);
	if (code >= 0)
		return code;
	if (command_request_load(&q, cmd.place.out, &j) < 0) {
		(void)fprintf(stderr, "flamelab report: no run to report on: %s\n", j.message);
		return POLICY_USAGE;
	}
	code = command_campaign(&cmd, &q, true, &c);
	return code >= 0 ? code : command_finish(&c, true);
}

static int command_move_baselines(struct campaign *c, enum gate_kind gate, const char *why)
{
	char dir[600], key[POLICY_KEY_MAX];
	const char *unit;
	size_t moved = 0;
	int r;

	(void)snprintf(dir, sizeof(dir), "%s/lab", c->place.source);
	for (size_t i = 0; i < c->count; i++) {
		struct campaign_item *it = &c->items[i];
		const struct image_info *image = &c->image[it->plan.scenario->arch];
		const char *name = it->plan.scenario->name;

		if (it->plan.scenario->need[gate] == GATE_ABSENT || !it->has_cost ||
			!c->has_image[it->plan.scenario->arch] || image->drifted ||
			it->infrastructure)
			continue;
		policy_key(image, it->plan.scenario->shift, key);
		r = policy_rebaseline(c->policy, dir, gate, name, key, it->cost, why);
		if (r < 0) {
			log_error("lab", "write baselines", r, "dir=%s", dir);
			return POLICY_INFRASTRUCTURE;
		}
		(void)policy_has_baselines(gate, &unit); /* it was asked before */
		(void)printf("%s: %s is now %.0f %s for %s\n", name, gate_kind_name(gate), it->cost,
			unit, key);
		moved++;
	}
	if (moved)
		return POLICY_PASS;
	(void)fprintf(stderr,
		"flamelab rebaseline: the last run measured no %s on an image that is "
		"as locked\n",
		gate_kind_name(gate));
	return POLICY_INCONCLUSIVE;
}

int command_rebaseline(int argc, char **argv)
{
	_cleanup_(command_done) struct command cmd;
	_cleanup_(campaign_done) struct campaign c = {0};
	_cleanup_(json_done) struct json j = {0};
	struct command_request q = {.quiet = true};
	enum gate_kind gate = GATE_UNWIND_COST;
	const char *unit;
	int code = command_open(
		&cmd, rebaseline_specs, "rebaseline unwind_cost|ingestion --why TEXT", argc, argv);

	if (code >= 0)
		return code;
	if (cmd.operands != argc - 1 || !gate_kind_parse(argv[cmd.operands], &gate) ||
		!policy_has_baselines(gate, &unit) || !cmd.o.why || strlen(cmd.o.why) < 10) {
		(void)fprintf(stderr, "flamelab rebaseline: needs the gate 'unwind_cost' or "
				      "'ingestion', and --why "
				      "with at least 10 characters\n");
		return POLICY_USAGE;
	}
	if (command_request_load(&q, cmd.place.out, &j) < 0) {
		(void)fprintf(
			stderr, "flamelab rebaseline: no run to take it from: %s\n", j.message);
		return POLICY_USAGE;
	}
	code = command_campaign(&cmd, &q, true, &c);
	return code >= 0 ? code : command_move_baselines(&c, gate, cmd.o.why);
}

int command_shell(int argc, char **argv)
{
	_cleanup_(command_done) struct command c;
	struct image_info image;
	struct vm_config vm = {.mode = VM_FAST, .cpus = 1, .memory_mb = 1024};
	int code = command_open(&c, plain_specs, "shell", argc, argv);
	int r;

	if (code < 0)
		code = command_refuse_operands(&c, argc, argv);
	if (code >= 0)
		return code;
	r = image_find(c.place.source, VM_X86_64, &image);
	if (r < 0) {
		log_error("lab", "find image", r, "source=%s", c.place.source);
		return POLICY_INFRASTRUCTURE;
	}
	vm.image_dir = image.dir;
	vm.bin_dir = c.place.bin;
	r = vm_shell(&vm);
	if (r < 0)
		log_error("lab", "run a shell", r, "image=%s", image.dir);
	return r == 0 ? POLICY_PASS : POLICY_INFRASTRUCTURE;
}
