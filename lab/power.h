/*
 * What play power_cut left (lab/guest/power.h). power.json:
 *	{ "schema":"flamelab-power/1", "error":"what kept the play from its end, or empty",
 *	  "first":"what was wrong first after a cut, or empty",
 *	  "entries":0, "log_bytes":0, "marks":0,	of the log; a mark stands behind each acknowledgement
 *	  "cuts_wanted":20, "cuts":20, "cuts_between":6,	cuts_between: not right behind a mark
 *	  "held":0,					promises that were checked, over all cuts
 *	  "lost_pushes":0, "wrong_pushes":0,		wrong: counted twice, or another value
 *	  "lost_requests":0, "lost_tokens":0,		a cancellation or revocation that is forgotten, too
 *	  "verify_faults":0,				cuts after which flame-backend verify found some
 *	  "failed_mounts":0, "failed_starts":0, "failed_calls":0 }
 */
#ifndef LAB_POWER_H
#define LAB_POWER_H

#include <stddef.h>
#include <stdint.h>

#include "lab/json.h"

struct power_result {
	struct json doc;
	const char *error, *first;
	uint64_t entries, log_bytes, marks, cuts_wanted, cuts, cuts_between, held;
	uint64_t lost_pushes, wrong_pushes, lost_requests, lost_tokens;
	uint64_t verify_faults, failed_mounts, failed_starts, failed_calls;
};

/* 0 or -EBADMSG with doc.message. Give p to power_done() in any case. */
int power_parse(struct power_result *p, const char *file, const void *data, size_t size);
void power_done(struct power_result *p);

#endif
