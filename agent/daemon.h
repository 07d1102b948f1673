/*
 * `flame-agent daemon`: waits for commands, records, uploads. Dormant it is one process with a loop, a
 * timer and a connection: no BPF object, no perf event, no thread.
 */
#ifndef AGENT_DAEMON_H
#define AGENT_DAEMON_H

#include "base/buf.h"

/* argv[0] is "daemon". Returns the exit code: 0 ended by a signal or another one runs, 1 failed, 2 usage. */
int daemon_main(int argc, char **argv, const char *version);
/* Its options as text. */
int daemon_help(struct buf *out);

#endif
