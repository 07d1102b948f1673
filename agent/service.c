/* See service.h. */
#include "agent/service.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>

#include "agent/cgroup.h"
#include "base/def.h"
#include "base/str.h"

static const char *const kinds[] = {
	[SERVICE_COMM] = "comm:", [SERVICE_UNIT] = "unit:", [SERVICE_CGROUP] = "cgroup:"};

int service_rule_parse(const char *text, struct buf *why, struct service_rule *ret)
{
	const char *equals = strrchr(text, '=');

	for (size_t i = 0; equals && i < ARRAY_SIZE(kinds); i++) {
		const char *pattern = text + strlen(kinds[i]);
		size_t size;

		if (!str_has_prefix(text, kinds[i]) || pattern >= equals)
			continue;
		size = (size_t)(equals - pattern);
		if (size >= sizeof(ret->pattern) || !equals[1] ||
			strlen(equals + 1) >= sizeof(ret->name))
			break;
		ret->kind = (enum service_kind)i;
		memcpy(ret->pattern, pattern, size);
		ret->pattern[size] = '\0';
		(void)snprintf(ret->name, sizeof(ret->name), "%s", equals + 1);
		return 0;
	}
	(void)buf_printf(why,
		"'%.200s' is not comm:PATTERN=NAME, unit:PATTERN=NAME or cgroup:PATTERN=NAME",
		text);
	return -EINVAL;
}

static int hex_digit(char c)
{
	return isdigit((unsigned char)c)    ? c - '0'
	       : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
					    : -1;
}

/*
 * "foo@1.service" -> "foo": instances of one template are one service, which the label cgroup tells
 * apart. systemd escapes what a name may not hold as \xNN.
 */
static void name_of_unit(const char *unit, char ret[SERVICE_NAME_MAX])
{
	size_t size = strlen(unit) - strlen(".service");
	const char *at = memchr(unit, '@', size);
	size_t n = 0;

	if (at && at > unit)
		size = (size_t)(at - unit);
	for (size_t i = 0; i < size && n + 1 < SERVICE_NAME_MAX; i++) {
		int high = i + 3 < size && unit[i] == '\\' && unit[i + 1] == 'x'
				   ? hex_digit(unit[i + 2])
				   : -1;
		int low = high >= 0 ? hex_digit(unit[i + 3]) : -1;

		if (low >= 0 && isprint(16 * high + low)) {
			ret[n++] = (char)(16 * high + low);
			i += 3;
		} else {
			ret[n++] = unit[i];
		}
	}
	ret[n] = '\0';
}

static bool rule_applies(
	const struct service_rule *rule, const struct service_facts *f, const char *unit)
{
	const char *text = rule->kind == SERVICE_COMM   ? f->comm
			   : rule->kind == SERVICE_UNIT ? unit
							: f->cgroup;

	return *text && fnmatch(rule->pattern, text, 0) == 0;
}

enum service_source service_name(const struct service_facts *f, char ret[SERVICE_NAME_MAX])
{
	char unit[CGROUP_UNIT_MAX] = "";
	const char *name = f->fixed;
	enum service_source source = SERVICE_GIVEN;

	(void)cgroup_unit(f->cgroup, unit); /* none leaves "" */
	for (size_t i = 0; !*name && i < f->rule_count; i++)
		if (rule_applies(&f->rules[i], f, unit))
			name = f->rules[i].name;
	if (!*name && *f->workload) {
		name = f->workload;
		source = SERVICE_OF_WORKLOAD;
	}
	if (!*name && f->is_kernel)
		name = "kernel";
	if (!*name && *unit) {
		name_of_unit(unit, ret);
		return SERVICE_OF_UNIT;
	}
	if (!*name) {
		source = SERVICE_OF_NAME;
		name = *f->exe ? f->exe : *f->comm ? f->comm : "unknown";
	}
	(void)snprintf(ret, SERVICE_NAME_MAX, "%s", name); /* cut is a name, too */
	return source;
}
