/*
 * Gate power_cut: after no cut does the backend lack what it had acknowledged. A run that recorded no promise,
 * or that cut only where nothing was under way, could not have seen one broken: unmeasured.
 */
#include "base/def.h"
#include "lab/judge.h"

static void judge_power_one(struct gate *g, const char *step, const struct power_result *p)
{
	const struct {
		const char *what;
		uint64_t count;
	} limits[] = {
		{"acknowledged pushes that are lost", p->lost_pushes},
		{"pushes counted twice or changed", p->wrong_pushes},
		{"requests or cancellations that are lost", p->lost_requests},
		{"tokens or revocations that are lost", p->lost_tokens},
		{"cuts after which flame-backend verify finds faults", p->verify_faults},
		{"file systems that cannot be mounted", p->failed_mounts},
		{"backends that do not start", p->failed_starts},
		{"calls that fail after a cut", p->failed_calls},
	};

	gate_check_near(
		g, "", (double)p->cuts_wanted, (double)p->cuts, 0, "power cuts, %.70s", step);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		gate_check_most(g, "", 0, (double)limits[i].count, 0, "%s, %.50s%s%.50s",
			limits[i].what, step, limits[i].count && p->first[0] ? ": " : "",
			limits[i].count ? p->first : "");
}

void judge_power_cut(struct gate *g, const struct evidence *e, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct power_result *p = &e[i].power;

		if (!e[i].has_power) {
			gate_unmeasured(g, "%s", e[i].no_power);
			continue;
		}
		/* What was found before the play broke off stands. */
		if (p->error[0])
			gate_unmeasured(g, "%s: %s", e[i].step, p->error);
		else if (p->held == 0 || p->cuts_between == 0)
			gate_unmeasured(g, "%s: no cut could have shown a loss", e[i].step);
		judge_power_one(g, e[i].step, p);
	}
}
