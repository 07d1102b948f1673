/* flame-agent: finds the subcommand and runs it. */
#include <fcntl.h>
#include <sys/prctl.h>

#include "agent/collect_verify.h"
#include "agent/containers.h"
#include "agent/daemon.h"
#include "agent/debuginfod.h"
#include "agent/record.h"
#include "agent/symbolize.h"
#include "agent/window.h"
#include "base/buf.h"
#include "base/def.h"
#include "version.h"

static int usage(FILE *to, int code)
{
	_cleanup_(buf_done) struct buf help = BUF_INIT(65536);

	(void)record_help(&help); /* fits */
	(void)buf_append_str(&help, "\ndaemon:\n");
	(void)daemon_help(&help);
	(void)fprintf(to,
		"Usage: flame-agent record [OPTION]...   profile this machine into a file\n"
		"       flame-agent daemon [OPTION]...   profile when a backend says so\n"
		"       flame-agent help | --version\n\n"
		"record:\n%s",
		buf_str(&help));
	return code;
}

/*
 * A standard descriptor that the caller has closed would go to the next file that is opened, and
 * messages into that file.
 */
static void hold_standard_fds(void)
{
	int fd = open("/dev/null", O_RDWR);

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR);
	if (fd > STDERR_FILENO)
		(void)close(fd); /* nothing was written */
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	/* The agent's own processes are started through /proc/self/exe and would be called "exe". */
	(void)prctl(PR_SET_NAME, "flame-agent"); /* only a name */

	hold_standard_fds();
	/* Libraries that read debug information would ask the network by themselves. */
	(void)unsetenv("DEBUGINFOD_URLS");
	if (strcmp(command, SYMBOLIZER_HELPER_ARG) == 0)
		return symbolizer_helper_main(argc, argv);
	if (strcmp(command, COLLECT_VERIFY_ARG) == 0)
		return collect_verify_main();
	if (strcmp(command, WINDOW_ARG) == 0)
		return window_main(argc - 1, argv + 1, FLAME_VERSION);
	if (strcmp(command, CONTAINERS_ARG) == 0)
		return containers_main(argc - 1, argv + 1);
	if (strcmp(command, DEBUGINFOD_ARG) == 0)
		return debuginfod_main(argc - 1, argv + 1);
	if (strcmp(command, "daemon") == 0)
		return daemon_main(argc - 1, argv + 1, FLAME_VERSION);
	if (strcmp(command, "record") == 0)
		return record_main(argc - 1, argv + 1, FLAME_VERSION);
	if (strcmp(command, "--version") == 0 || strcmp(command, "version") == 0) {
		(void)printf("flame-agent %s\n", FLAME_VERSION);
		return RECORD_EXIT_OK;
	}
	if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0 ||
		strcmp(command, "-h") == 0)
		return usage(stdout, RECORD_EXIT_OK);
	if (*command) {
		(void)fprintf(
			stderr, "flame-agent: no command '%s': see flame-agent help\n", command);
		return RECORD_EXIT_USAGE;
	}
	return usage(stderr, RECORD_EXIT_USAGE);
}
