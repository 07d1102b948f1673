/* Arguments of the workloads: --name VALUE or --name=VALUE from one table, which also prints
 * --help.
 *
 * Numbers are unsigned decimal with limits; anything else ends the program with exit code 2 and one
 * line on stderr, before any work is done. */
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace args
{

/* A row is a number (number and its limits) or a string (string). The variables hold the defaults.
 */
struct option {
	const char *name;
	const char *help;
	uint64_t *number;
	uint64_t min, max;
	const char **string;
};

[[noreturn]] inline void refuse(const char *program, const char *object, const char *why)
{
	fprintf(stderr, "%s: %s: %s; see --help\n", program, object, why);
	exit(2);
}

[[noreturn]] inline void help(const char *program, const option *opts, size_t n)
{
	printf("usage: %s [--NAME VALUE]...\n", program);
	for (size_t i = 0; i < n; i++) {
		const option &o = opts[i];
		if (o.number)
			printf("  --%-14s %s (%llu to %llu, default %llu)\n", o.name, o.help,
				(unsigned long long)o.min, (unsigned long long)o.max,
				(unsigned long long)*o.number);
		else
			printf("  --%-14s %s\n", o.name, o.help);
	}
	exit(0);
}

inline void set(const char *program, const option &o, const char *value)
{
	if (o.string) {
		if (!*value)
			refuse(program, o.name, "empty value");
		*o.string = value;
		return;
	}
	char *end = nullptr;
	errno = 0;
	unsigned long long v = strtoull(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno)
		refuse(program, o.name, "not an unsigned number");
	if (v < o.min || v > o.max)
		refuse(program, o.name, "out of range");
	*o.number = v;
}

/* Fills the variables that the rows point to, or exits: 0 after --help, 2 on anything wrong. */
template <size_t N>
inline void parse(const char *program, int argc, char **argv, const option (&opts)[N])
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];
		if (!strcmp(a, "--help"))
			help(program, opts, N);
		if (strncmp(a, "--", 2))
			refuse(program, a, "not an option");
		a += 2;
		size_t len = strcspn(a, "=");
		const option *found = nullptr;
		for (const option &o : opts)
			if (strlen(o.name) == len && !strncmp(o.name, a, len))
				found = &o;
		if (!found)
			refuse(program, argv[i], "unknown option");
		if (a[len])
			set(program, *found, a + len + 1);
		else if (i + 1 < argc)
			set(program, *found, argv[++i]);
		else
			refuse(program, argv[i], "value missing");
	}
}

} // namespace args
