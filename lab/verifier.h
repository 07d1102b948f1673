/*
 * What `flame-agent __verify` (agent/collect_verify.h) said of a kernel, and lab-init behind it. verifier.log:
 *
 *	cfi on_sample 61032	unwinder, program, instructions that the verifier went through
 *	...			and what libbpf and the agent have to say
 *	kernel 6.1.0-57-amd64
 *	exit 0			of the agent: a number or "signal N"
 */
#ifndef LAB_VERIFIER_H
#define LAB_VERIFIER_H

#include <stddef.h>
#include <stdint.h>

enum { VERIFIER_LOG_MAX = 1 << 20, VERIFIER_PROGRAMS_MAX = 32 };

struct verifier_program {
	char unwind[8], name[32];
	uint64_t instructions;
};

struct verifier {
	struct verifier_program programs[VERIFIER_PROGRAMS_MAX];
	size_t count;
	char kernel[64], exit[32];
	char said[160]; /* the last line that is none of these, "" for none */
};

/* 0; -EBADMSG when kernel or exit are missing, or there are too many programs. */
int verifier_parse(struct verifier *v, const char *text);

#endif
