/*
 * Faults that the lab switches on to prove that it would notice them: "acknowledge before commit" and
 * "dedupe off" of store.h. The shipped program links fault_none.c and has none; flame-backend-faulty
 * links fault_seeded.c, which reads FLAME_FAULT=ack_early|no_dedupe.
 */
#ifndef BACKEND_FAULT_H
#define BACKEND_FAULT_H

#include "backend/store.h"

/* The active fault's name or "". -EINVAL: there is no such fault. */
int fault_init(struct store_options *o, const char **ret_name);

#endif
