/*
 * Events about processes as they were read from the rings, the last so many of them, found by process.
 * What is pushed out by newer ones is forgotten; a path may be forgotten before its event, and is then
 * empty.
 */
#ifndef AGENT_SIDEBAND_LOG_H
#define AGENT_SIDEBAND_LOG_H

#include "agent/sideband_ring.h"

struct sideband_log;

/* 0 or -ENOMEM. Both at least 1. */
int sideband_log_new(size_t events_max, size_t text_max, struct sideband_log **ret);
void sideband_log_free(struct sideband_log *l); /* accepts NULL */

/* SIDEBAND_OTHER is left out. */
void sideband_log_add(struct sideband_log *l, const struct sideband_event *e);
/*
 * The events of tgid, the last added first: *at is 0 to begin with. ret->path is not terminated and lives
 * until the next add. False: no more.
 */
bool sideband_log_next(
	const struct sideband_log *l, uint32_t tgid, uint64_t *at, struct sideband_event *ret);
/* The latest time of what was forgotten; 0: nothing was. */
uint64_t sideband_log_forgotten_ns(const struct sideband_log *l);

#endif
