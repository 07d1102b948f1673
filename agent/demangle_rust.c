/*
 * v0, by RFC 2603 and the compiler's book ("v0 Symbol Format"). A recursive descent that prints as it
 * goes; what is not printed (the path of an impl) is parsed all the same. The grammar:
 *
 *	symbol		"_R" path [path of the instantiating crate]
 *	path		"C" name | "N" namespace path name | "I" path {argument} "E" | "B" back reference
 *			| "M" [dis] path type | "X" [dis] path type path | "Y" type path
 *	argument	"L" number | "K" constant | type
 *	type		letter | path | "A" type constant | "S" type | "T" {type} "E" | "B" back reference
 *			| "R" ["L" number] type | "Q" likewise | "P" type | "O" type
 *			| "F" ["G" number] ["U"] ["K" abi] {type} "E" type
 *			| "D" ["G" number] {path {"p" name type}} "E" "L" number
 *	constant	type of an integer, bool or char, then ["n"] hex "_" | "p" | "B" back reference
 *	name		["s" number] ["u"] decimal ["_"] bytes
 *	number		"_" is 0, else base 62 "_" is that and 1
 *
 * Output is that of rustc-demangle's alternate form and of binutils.
 */
#include "agent/demangle_rust.h"

#include <errno.h>

#include "agent/demangle_rust_internal.h"
#include "base/def.h"

static void rust_path(struct rust *d, bool is_value);
static void rust_type(struct rust *d);
static void rust_constant(struct rust *d);

void rust_fail(struct rust *d, int error)
{
	if (d->error == 0)
		d->error = error;
	d->at = d->size; /* nothing more is read: every loop ends */
}

void rust_put(struct rust *d, const char *s, size_t size)
{
	if (d->is_silent || d->error)
		return;
	if (size > sizeof(d->out->bytes) - d->out->size) {
		rust_fail(d, -E2BIG);
		return;
	}
	memcpy(d->out->bytes + d->out->size, s, size);
	d->out->size += size;
}

void rust_say(struct rust *d, const char *s)
{
	rust_put(d, s, strlen(s));
}

static void rust_number(struct rust *d, uint64_t n)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	rust_say(d, text);
}

static char rust_peek(const struct rust *d)
{
	return d->at < d->size ? d->name[d->at] : '\0';
}

static char rust_next(struct rust *d)
{
	if (d->at < d->size)
		return d->name[d->at++];
	rust_fail(d, -EINVAL);
	return '\0';
}

static bool rust_eat(struct rust *d, char c)
{
	if (rust_peek(d) != c)
		return false;
	d->at++;
	return true;
}

/* One step down. False at a cap, or after an error. */
static bool rust_enter(struct rust *d)
{
	if (d->depth >= DEMANGLE_RUST_DEPTH_MAX || d->steps >= DEMANGLE_RUST_STEPS_MAX)
		rust_fail(d, -E2BIG);
	if (d->error)
		return false;
	d->depth++;
	d->steps++;
	return true;
}

static uint64_t rust_base62(struct rust *d)
{
	uint64_t n = 0;

	if (rust_eat(d, '_'))
		return 0;
	for (;;) {
		char c = rust_next(d);
		unsigned int digit;

		if (c == '_')
			break;
		if (c >= '0' && c <= '9')
			digit = (unsigned int)(c - '0');
		else if (c >= 'a' && c <= 'z')
			digit = (unsigned int)(c - 'a') + 10;
		else if (c >= 'A' && c <= 'Z')
			digit = (unsigned int)(c - 'A') + 36;
		else
			digit = 62;
		if (digit == 62 || n > (UINT64_MAX - digit) / 62) {
			rust_fail(d, -EINVAL);
			return 0;
		}
		n = n * 62 + digit;
	}
	if (n == UINT64_MAX)
		rust_fail(d, -EINVAL);
	return d->error ? 0 : n + 1;
}

/* "s" number is one more than the number, none is 0. */
static uint64_t rust_optional(struct rust *d, char tag)
{
	uint64_t n = rust_eat(d, tag) ? rust_base62(d) + 1 : 0;

	return d->error ? 0 : n;
}

static struct rust_name rust_bare_name(struct rust *d)
{
	struct rust_name n = {.is_punycode = rust_eat(d, 'u')};
	size_t size = 0;
	char c = rust_next(d);

	if (c < '0' || c > '9') {
		rust_fail(d, -EINVAL);
		return n;
	}
	size = (size_t)(c - '0');
	while (size > 0 && rust_peek(d) >= '0' && rust_peek(d) <= '9' &&
		size < DEMANGLE_RUST_IN_MAX)
		size = size * 10 + (size_t)(rust_next(d) - '0');
	(void)rust_eat(d, '_'); /* stands where the bytes begin with a digit or '_' */
	if (d->error || size > d->size - d->at) {
		rust_fail(d, -EINVAL);
		return n;
	}
	n.bytes = d->name + d->at;
	n.size = size;
	d->at += size;
	return n;
}

static struct rust_name rust_name(struct rust *d, uint64_t *ret_disambiguator)
{
	*ret_disambiguator = rust_optional(d, 's');
	return rust_bare_name(d);
}

/* Goes on at an earlier place, for as long as what stands there. What is not printed need not go. */
static void rust_back(struct rust *d, void (*parse)(struct rust *d))
{
	size_t from = d->at - 1;
	uint64_t to = rust_base62(d);
	size_t resume = d->at;

	if (d->error)
		return;
	if (to >= from) {
		rust_fail(d, -EINVAL);
		return;
	}
	if (d->is_silent)
		return;
	d->at = (size_t)to;
	parse(d);
	if (!d->error)
		d->at = resume;
}

/* Lifetimes count from the innermost binder out. */
static void rust_lifetime(struct rust *d, uint64_t index)
{
	uint64_t depth = d->bound - index;

	if (index == 0) {
		rust_say(d, "'_");
		return;
	}
	if (index > d->bound) {
		rust_fail(d, -EINVAL);
		return;
	}
	if (depth < 26) {
		char name[] = {'\'', (char)('a' + depth)};

		rust_put(d, name, sizeof(name));
		return;
	}
	rust_say(d, "'_");
	rust_number(d, depth);
}

/* "for<'a, 'b> "; returns how many lifetimes to unbind. */
static uint64_t rust_binder(struct rust *d)
{
	uint64_t count = rust_optional(d, 'G');

	if (count == 0)
		return 0;
	if (count > DEMANGLE_RUST_IN_MAX || d->bound > DEMANGLE_RUST_IN_MAX) {
		rust_fail(d, -E2BIG);
		return 0;
	}
	rust_say(d, "for<");
	for (uint64_t i = 0; i < count && !d->error; i++) {
		if (i > 0)
			rust_say(d, ", ");
		d->bound++;
		rust_lifetime(d, 1);
	}
	rust_say(d, "> ");
	return count;
}

static void rust_argument(struct rust *d)
{
	if (rust_eat(d, 'L'))
		rust_lifetime(d, rust_base62(d));
	else if (rust_eat(d, 'K'))
		rust_constant(d);
	else
		rust_type(d);
}

static void rust_arguments(struct rust *d, void (*parse)(struct rust *d))
{
	for (size_t i = 0; !d->error && !rust_eat(d, 'E'); i++) {
		if (i > 0)
			rust_say(d, ", ");
		parse(d);
	}
}

/* Of an impl: parsed, and not shown, since its type says it all. */
static void rust_impl_path(struct rust *d)
{
	bool was_silent = d->is_silent;

	d->is_silent = true;
	(void)rust_optional(d, 's');
	rust_path(d, false);
	d->is_silent = was_silent;
}

/* Upper case namespaces are the compiler's: "{closure#0}", "{shim:vtable#0}". */
static void rust_nested(struct rust *d, bool is_value)
{
	char space = rust_next(d);
	uint64_t disambiguator;

	if (!((space >= 'a' && space <= 'z') || (space >= 'A' && space <= 'Z'))) {
		rust_fail(d, -EINVAL);
		return;
	}
	rust_path(d, is_value);
	struct rust_name n = rust_name(d, &disambiguator);
	if (space >= 'a') {
		if (n.size > 0) {
			rust_say(d, "::");
			rust_name_put(d, &n);
		}
		return;
	}
	rust_say(d, "::{");
	if (space == 'C')
		rust_say(d, "closure");
	else if (space == 'S')
		rust_say(d, "shim");
	else
		rust_put(d, &space, 1);
	if (n.size > 0) {
		rust_say(d, ":");
		rust_name_put(d, &n);
	}
	rust_say(d, "#");
	rust_number(d, disambiguator);
	rust_say(d, "}");
}

static void rust_value_path(struct rust *d)
{
	rust_path(d, true);
}

static void rust_type_path(struct rust *d)
{
	rust_path(d, false);
}

static void rust_qualified(struct rust *d, char tag)
{
	if (tag != 'Y')
		rust_impl_path(d);
	rust_say(d, "<");
	rust_type(d);
	if (tag != 'M') {
		rust_say(d, " as ");
		rust_path(d, false);
	}
	rust_say(d, ">");
}

static void rust_path(struct rust *d, bool is_value)
{
	uint64_t disambiguator;
	struct rust_name n;
	char tag = rust_next(d);

	if (!rust_enter(d))
		return;
	switch (tag) {
	case 'C':
		n = rust_name(d, &disambiguator);
		rust_name_put(d, &n);
		break;
	case 'N':
		rust_nested(d, is_value);
		break;
	case 'M':
	case 'X':
	case 'Y':
		rust_qualified(d, tag);
		break;
	case 'I':
		rust_path(d, is_value);
		rust_say(d, is_value ? "::<" : "<");
		rust_arguments(d, rust_argument);
		rust_say(d, ">");
		break;
	case 'B':
		rust_back(d, is_value ? rust_value_path : rust_type_path);
		break;
	default:
		rust_fail(d, -EINVAL);
	}
	d->depth--;
}

static const char *rust_basic(char tag)
{
	static const char *const names[] = {"i8", "bool", "char", "f64", "str", "f32", NULL, "u8",
		"isize", "usize", NULL, "i32", "u32", "i128", "u128", "_", NULL, NULL, "i16", "u16",
		"()", "...", NULL, "i64", "u64", "!"};

	return tag >= 'a' && tag <= 'z' ? names[tag - 'a'] : NULL;
}

/* "C", or a name in which '-' became '_'. */
static void rust_abi(struct rust *d)
{
	rust_say(d, "extern \"");
	if (rust_eat(d, 'C')) {
		rust_say(d, "C");
	} else {
		struct rust_name n = rust_bare_name(d);

		for (size_t i = 0; i < n.size && !d->error; i++)
			rust_put(d, n.bytes[i] == '_' ? "-" : &n.bytes[i], 1);
	}
	rust_say(d, "\" ");
}

static void rust_function(struct rust *d)
{
	uint64_t bound = rust_binder(d);

	if (rust_eat(d, 'U'))
		rust_say(d, "unsafe ");
	if (rust_eat(d, 'K'))
		rust_abi(d);
	rust_say(d, "fn(");
	rust_arguments(d, rust_type);
	rust_say(d, ")");
	if (!rust_eat(d, 'u')) { /* () goes without saying */
		rust_say(d, " -> ");
		rust_type(d);
	}
	d->bound -= bound;
}

/* A trait's path whose '<' stays open (d->is_open), so that bindings go into it: "Trait<A, Item = B>". */
static void rust_trait_path(struct rust *d)
{
	char tag = rust_peek(d);

	if (!rust_enter(d))
		return;
	d->is_open = false;
	if (tag == 'B') {
		d->at++;
		rust_back(d, rust_trait_path);
	} else if (tag == 'I') {
		d->at++;
		rust_path(d, false);
		rust_say(d, "<");
		rust_arguments(d, rust_argument);
		d->is_open = true;
	} else {
		rust_path(d, false);
		d->is_open = false;
	}
	d->depth--;
}

static void rust_trait(struct rust *d)
{
	rust_trait_path(d);
	bool is_open = d->is_open;

	while (!d->error && rust_eat(d, 'p')) {
		rust_say(d, is_open ? ", " : "<");
		struct rust_name n = rust_bare_name(d);

		rust_name_put(d, &n);
		rust_say(d, " = ");
		rust_type(d);
		is_open = true;
	}
	if (is_open)
		rust_say(d, ">");
}

static void rust_dyn(struct rust *d)
{
	rust_say(d, "dyn ");
	uint64_t bound = rust_binder(d);

	for (size_t i = 0; !d->error && !rust_eat(d, 'E'); i++) {
		if (i > 0)
			rust_say(d, " + ");
		rust_trait(d);
	}
	d->bound -= bound;
	if (!rust_eat(d, 'L')) {
		rust_fail(d, -EINVAL);
		return;
	}
	uint64_t lifetime = rust_base62(d);
	if (lifetime > 0) {
		rust_say(d, " + ");
		rust_lifetime(d, lifetime);
	}
}

static void rust_reference(struct rust *d, char tag)
{
	rust_say(d, "&");
	if (rust_eat(d, 'L')) {
		uint64_t lifetime = rust_base62(d);

		if (lifetime > 0) {
			rust_lifetime(d, lifetime);
			rust_say(d, " ");
		}
	}
	if (tag == 'Q')
		rust_say(d, "mut ");
	rust_type(d);
}

static void rust_tuple(struct rust *d)
{
	size_t count = 0;

	rust_say(d, "(");
	for (; !d->error && !rust_eat(d, 'E'); count++) {
		if (count > 0)
			rust_say(d, ", ");
		rust_type(d);
	}
	rust_say(d, count == 1 ? ",)" : ")");
}

static void rust_array(struct rust *d, char tag)
{
	rust_say(d, "[");
	rust_type(d);
	if (tag == 'A') {
		rust_say(d, "; ");
		rust_constant(d);
	}
	rust_say(d, "]");
}

static void rust_composed(struct rust *d, char tag)
{
	switch (tag) {
	case 'R':
	case 'Q':
		rust_reference(d, tag);
		break;
	case 'P':
	case 'O':
		rust_say(d, tag == 'P' ? "*const " : "*mut ");
		rust_type(d);
		break;
	case 'A':
	case 'S':
		rust_array(d, tag);
		break;
	case 'T':
		rust_tuple(d);
		break;
	case 'F':
		rust_function(d);
		break;
	case 'D':
		rust_dyn(d);
		break;
	case 'B':
		rust_back(d, rust_type);
		break;
	default:
		d->at--;
		rust_path(d, false);
	}
}

static void rust_type(struct rust *d)
{
	char tag = rust_next(d);
	const char *basic = rust_basic(tag);

	if (!rust_enter(d))
		return;
	if (basic)
		rust_say(d, basic);
	else
		rust_composed(d, tag);
	d->depth--;
}

/* ["n"] hex "_": value in *ret, if it fits; digits and their count in any case. */
static void rust_hex(struct rust *d, const char **ret_digits, size_t *ret_count, uint64_t *ret)
{
	uint64_t value = 0;
	size_t from = d->at;

	for (;;) {
		char c = rust_next(d);

		if (c == '_' || d->error)
			break;
		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
			rust_fail(d, -EINVAL);
			return;
		}
		value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	if (d->error)
		return;
	*ret_digits = d->name + from;
	*ret_count = d->at - 1 - from;
	*ret = value;
}

static void rust_constant_value(struct rust *d, char tag)
{
	bool is_signed =
		tag == 'a' || tag == 's' || tag == 'l' || tag == 'x' || tag == 'n' || tag == 'i';
	bool is_unsigned =
		tag == 'h' || tag == 't' || tag == 'm' || tag == 'y' || tag == 'o' || tag == 'j';
	const char *digits = NULL;
	size_t count = 0;
	uint64_t value = 0;

	if (!is_signed && !is_unsigned && tag != 'b' && tag != 'c') {
		rust_fail(d, -EINVAL);
		return;
	}
	if (is_signed && rust_eat(d, 'n'))
		rust_say(d, "-");
	rust_hex(d, &digits, &count, &value);
	if (d->error)
		return;
	if (tag == 'b') {
		rust_say(d, value ? "true" : "false");
	} else if (tag == 'c') {
		rust_char_put(d, value);
	} else if (count > 16) {
		rust_say(d, "0x");
		rust_put(d, digits, count);
	} else {
		rust_number(d, value);
	}
}

static void rust_constant(struct rust *d)
{
	char tag = rust_next(d);

	if (!rust_enter(d))
		return;
	if (tag == 'p')
		rust_say(d, "_");
	else if (tag == 'B')
		rust_back(d, rust_constant);
	else
		rust_constant_value(d, tag);
	d->depth--;
}

static int rust_v0(const char *name, size_t size, struct demangle_rust_text *out)
{
	struct rust d = {.name = name + 2, .size = size - 2, .out = out};

	/* '.' and '$' begin what is the vendor's. */
	for (size_t i = 0; i < d.size; i++)
		if (name[2 + i] == '.' || name[2 + i] == '$')
			d.size = i;
	/* A path's tag is upper case; a digit would be a later version of the encoding. */
	if (d.size < 2 || name[2] < 'A' || name[2] > 'Z')
		return -EINVAL;
	rust_path(&d, true);
	if (d.error == 0 && d.at < d.size) {
		d.is_silent = true;
		rust_path(&d, false);
	}
	if (d.error == 0 && d.at < d.size)
		return -EINVAL;
	return d.error;
}

int demangle_rust(const char *name, size_t size, struct demangle_rust_text *ret)
{
	ret->size = 0;
	if (size < 3 || name[0] != '_' || (name[1] != 'R' && name[1] != 'Z'))
		return -EINVAL;
	if (size > DEMANGLE_RUST_IN_MAX)
		return -E2BIG;
	int r = name[1] == 'R' ? rust_v0(name, size, ret) : rust_legacy(name, size, ret);

	return r == 0 && ret->size == 0 ? -EINVAL : r;
}
