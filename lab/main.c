/* flamelab: finds the subcommand and runs it. */
#include "base/def.h"
#include "lab/command.h"
#include "lab/policy.h"
#include "version.h"

static const char usage[] =
	"Usage: flamelab COMMAND [OPTION]...\n"
	"\n"
	"Boots VMs with workloads whose reasons for being slow are known exactly, records them "
	"with\n"
	"flame-agent, and judges: are the flame graphs right, and what does recording cost?\n"
	"\n"
	"  list [--cost]             scenarios, and how many busy guest seconds each needs\n"
	"  run [SCENARIO]...         run scenarios (default: suite smoke), judge, write "
	"build/lab/\n"
	"  selftest                  agents with seeded faults: every fault must be caught\n"
	"  perturb                   other seeds and offsets: no false alarm\n"
	"  report                    judge the last run again and rewrite its reports\n"
	"  rebaseline GATE --why T   make the last run's cost the figure to hold\n"
	"  shell                     a prompt in the VM\n"
	"\n"
	"`flamelab COMMAND --help` has the options. First steps: `flamelab run cpu_split`, then "
	"open\n"
	"build/lab/report.html. lab/README.md says how to read the verdicts.\n"
	"\n"
	"Exit codes: 0 all required gates passed; 1 a gate failed; 2 usage; 3 a VM or file failed "
	"us;\n"
	"4 inconclusive: something is unmeasured that lab/unmeasured.json does not list; 77 "
	"nothing\n"
	"could run.\n";

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*main)(int argc, char **argv);
	} commands[] = {
		{"list", command_list},
		{"run", command_run},
		{"selftest", command_selftest},
		{"perturb", command_perturb},
		{"report", command_report},
		{"rebaseline", command_rebaseline},
		{"shell", command_shell},
	};
	const char *name = argc > 1 ? argv[1] : "";

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].main(argc - 1, argv + 1);
	if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
		(void)printf("flamelab %s\n", FLAME_VERSION);
		return POLICY_PASS;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
		(void)fputs(usage, stdout);
		return POLICY_PASS;
	}
	if (*name)
		(void)fprintf(
			stderr, "flamelab: no command '%s'; `flamelab --help` lists them\n", name);
	else
		(void)fputs(usage, stderr);
	return POLICY_USAGE;
}
