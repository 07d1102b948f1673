/* `flame-agent record`: a profile of this machine, or of some processes, into one file. */
#ifndef AGENT_RECORD_H
#define AGENT_RECORD_H

#include "base/buf.h"

enum { RECORD_EXIT_OK = 0, RECORD_EXIT_FAILED = 1, RECORD_EXIT_USAGE = 2 };

/* argv[0] is "record". Returns the exit code; version stands in every output. */
int record_main(int argc, char **argv, const char *version);
/* Its options as text. */
int record_help(struct buf *out);

#endif
