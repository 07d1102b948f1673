/* The faults of fault.h, switched on by the environment. Never shipped. */
#include "backend/fault.h"

#include <errno.h>

#include "base/def.h"

int fault_init(struct store_options *o, const char **ret_name)
{
	const char *name = getenv("FLAME_FAULT");

	*ret_name = name ? name : "";
	if (!name || !*name)
		return 0;
	o->fault_ack_early = strcmp(name, "ack_early") == 0;
	o->fault_no_dedupe = strcmp(name, "no_dedupe") == 0;
	return o->fault_ack_early || o->fault_no_dedupe ? 0 : -EINVAL;
}
