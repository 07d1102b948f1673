/*
 * The half of str.h that turns text into numbers and numbers into text for people. strtoull and
 * printf are not enough: they accept blanks, signs, hex and inf, and follow the locale's comma.
 */
#include "base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>

#include "base/def.h"

static bool str_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t str_digits(const char *s)
{
	size_t n = 0;

	while (str_is_digit(s[n]))
		n++;
	return n;
}

/* The number that the first size bytes, all digits, spell; -ERANGE above UINT64_MAX. */
static int str_parse_digits(const char *s, size_t size, uint64_t *ret)
{
	uint64_t v = 0;

	if (size == 0)
		return -EINVAL;
	for (size_t i = 0; i < size; i++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return -ERANGE;
	}
	*ret = v;
	return 0;
}

int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	size_t n = str_digits(s);
	uint64_t v = 0;
	int r;

	if (s[n])
		return -EINVAL;
	r = str_parse_digits(s, n, &v);
	if (r < 0)
		return r;
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

int str_to_i64(const char *s, int64_t min, int64_t max, int64_t *ret)
{
	bool neg = s[0] == '-';
	uint64_t limit = neg ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
	uint64_t v = 0;
	int64_t value;
	int r = str_to_u64(s + neg, 0, limit, &v);

	if (r < 0)
		return r;
	value = neg ? (int64_t)(0 - v) : (int64_t)v;
	if (value < min || value > max)
		return -ERANGE;
	*ret = value;
	return 0;
}

/* [-]digits[.digits][e[+-]digits] with a digit on at least one side of the point. */
static bool str_is_float(const char *s)
{
	size_t whole, part = 0, n;

	s += *s == '-';
	whole = str_digits(s);
	s += whole;
	if (*s == '.') {
		part = str_digits(++s);
		s += part;
	}
	if (whole + part == 0)
		return false;
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '-' || *s == '+';
		n = str_digits(s);
		s += n;
		if (n == 0)
			return false;
	}
	return *s == '\0';
}

int str_to_f64(const char *s, double min, double max, double *ret)
{
	locale_t c_locale;
	double v;

	if (!str_is_float(s))
		return -EINVAL;
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (!c_locale)
		return -ENOMEM;
	v = strtod_l(s, NULL, c_locale);
	freelocale(c_locale);
	if (!isfinite(v) || v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

int str_to_duration_ns(const char *s, uint64_t *ret)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{"", NSEC_PER_SEC},
		{"ns", 1},
		{"us", 1000},
		{"ms", NSEC_PER_MSEC},
		{"s", NSEC_PER_SEC},
		{"m", 60 * NSEC_PER_SEC},
		{"h", 3600 * NSEC_PER_SEC},
	};
	size_t n = str_digits(s);

	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		uint64_t v = 0;
		int r;

		if (strcmp(s + n, units[i].name) != 0)
			continue;
		r = str_parse_digits(s, n, &v);
		if (r < 0)
			return r;
		if (__builtin_mul_overflow(v, units[i].ns, &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

struct str_unit {
	const char *name;
	double size;
};

/* The first unit in which the value rounds to less than 1000, or the last. */
static char *str_human(
	double v, const struct str_unit *units, size_t count, char out[STR_HUMAN_MAX])
{
	unsigned long long n;
	size_t i = 0;

	while (i + 1 < count && v / units[i].size >= 999.5)
		i++;
	v /= units[i].size;
	if (v >= 99.95) {
		(void)snprintf(out, STR_HUMAN_MAX, "%llu %s", (unsigned long long)(v + 0.5),
			units[i].name);
		return out;
	}
	/* In hundredths, by hand: printf would write the locale's decimal point. */
	n = v >= 9.995 ? (unsigned long long)(v * 10 + 0.5) * 10
		       : (unsigned long long)(v * 100 + 0.5);
	if (n % 100 == 0)
		(void)snprintf(out, STR_HUMAN_MAX, "%llu %s", n / 100, units[i].name);
	else if (n % 10 == 0)
		(void)snprintf(
			out, STR_HUMAN_MAX, "%llu.%llu %s", n / 100, n % 100 / 10, units[i].name);
	else
		(void)snprintf(
			out, STR_HUMAN_MAX, "%llu.%02llu %s", n / 100, n % 100, units[i].name);
	return out;
}

char *str_human_bytes(uint64_t bytes, char out[STR_HUMAN_MAX])
{
	static const struct str_unit units[] = {
		{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}};

	return str_human((double)bytes, units, ARRAY_SIZE(units), out);
}

char *str_human_ns(uint64_t ns, char out[STR_HUMAN_MAX])
{
	static const struct str_unit units[] = {
		{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};

	return str_human((double)ns, units, ARRAY_SIZE(units), out);
}
