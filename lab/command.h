/* flamelab's subcommands; each returns the exit code of DESIGN.md section 6. argv[0] is its name. */
#ifndef LAB_COMMAND_H
#define LAB_COMMAND_H

#include "base/buf.h"

int command_list(int argc, char **argv);
int command_run(int argc, char **argv);
int command_selftest(int argc, char **argv);
int command_perturb(int argc, char **argv);
int command_report(int argc, char **argv);
int command_rebaseline(int argc, char **argv);
int command_shell(int argc, char **argv);

/* What this run was asked for, kept for `report` and `rebaseline`. */
struct command_request {
	bool full, keep, quiet;
	uint64_t repeat, runs, at_once;
	int mode; /* 0: as the scenario says, else 1 + enum vm_mode */
	const char *names[128];
	size_t name_count;
};
int command_request_save(const struct command_request *q, const char *out_dir);
struct json;
/* j holds the names. 0 or -errno with j->message. */
int command_request_load(struct command_request *q, const char *out_dir, struct json *j);

#endif
