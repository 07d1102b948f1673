/*
 * `flame-agent __verify`: loads every kernel program on the running kernel, with unwind tables and without,
 * and says how many instructions its verifier went through,
 * with every kind of filter. For tests: a kernel allows a million, and
 * what takes more than COLLECT_VERIFY_MAX on one kernel may not load on the next.
 */
#ifndef AGENT_COLLECT_VERIFY_H
#define AGENT_COLLECT_VERIFY_H

#define COLLECT_VERIFY_ARG "__verify"

enum { COLLECT_VERIFY_MAX = 500000 };

/*
 * One line a program: "UNWIND PROGRAM INSTRUCTIONS". Exit code: 0; 1 when a program was refused or
 * took more than COLLECT_VERIFY_MAX.
 */
int collect_verify_main(void);

#endif
