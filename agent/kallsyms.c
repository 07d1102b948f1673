/*
 * One pass over /proc/kallsyms for a sorted set of addresses. Every address owns a slot for the
 * best symbol in (address before it, address]. A symbol is put into the slot of the first address
 * at or above it, if it is nearer than what is there; at the end an empty slot takes over its left
 * neighbour's. That is correct for any order of lines (modules are not in order) and costs one
 * comparison a line when they are in order.
 */
#include "agent/kallsyms.h"

#include <errno.h>
#include <fcntl.h>

#include "base/def.h"

enum {
	KALLSYMS_WINDOW_SIZE = 16 * 1024,
	KALLSYMS_LINES_MAX = 4 << 20,
	/* All-zero addresses are all zero from the first line on; no need to read on. */
	KALLSYMS_HIDDEN_LINES = 2000,
};

void kallsyms_begin(struct kallsyms_pass *p, const uint64_t *addresses, size_t count,
	struct kallsyms_answer *answers)
{
	*p = (struct kallsyms_pass){.addresses = addresses, .count = count, .answers = answers};
	memset(answers, 0, count * sizeof(*answers));
}

/* The slot for a symbol at address: the first query at or above it; count when there is none. */
static size_t kallsyms_slot(struct kallsyms_pass *p, uint64_t address)
{
	size_t low = 0;
	size_t high = p->count;
	size_t h = p->hint;

	if (h < p->count && address <= p->addresses[h] && (h == 0 || address > p->addresses[h - 1]))
		return h;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->addresses[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	p->hint = low;
	return low;
}

/* Labels that mark the end of a range, not a function. */
static bool kallsyms_is_marker(const char *name, size_t size)
{
	static const char *const markers[] = {"_etext", "_einittext", "_end", "__init_end"};

	for (size_t i = 0; i < ARRAY_SIZE(markers); i++)
		if (strlen(markers[i]) == size && memcmp(markers[i], name, size) == 0)
			return true;
	return false;
}

/* Two names of one address: global before local, then fewer underscores in front, then bytes. */
static bool kallsyms_is_better(
	const struct kallsyms_answer *a, bool is_global, const char *name, size_t size)
{
	size_t old_size = strlen(a->name);
	size_t old_bars = strspn(a->name, "_");
	size_t bars = 0;

	if (is_global != a->is_global)
		return is_global;
	while (bars < size && name[bars] == '_')
		bars++;
	if (bars != old_bars)
		return bars < old_bars;
	int order = memcmp(name, a->name, MIN(size, old_size));
	return order < 0 || (order == 0 && size < old_size);
}

static void kallsyms_put(struct kallsyms_pass *p, uint64_t address, char type, const char *name,
	size_t name_size, const char *module, size_t module_size)
{
	size_t slot = kallsyms_slot(p, address);
	bool is_text = (type == 't' || type == 'T' || type == 'w' || type == 'W') &&
		       !kallsyms_is_marker(name, name_size);
	bool is_global = type == 'T' || type == 'W';

	if (slot == p->count)
		return;
	struct kallsyms_answer *a = &p->answers[slot];
	name_size = MIN(name_size, (size_t)KALLSYMS_NAME_SIZE - 1);
	module_size = MIN(module_size, (size_t)KALLSYMS_MODULE_SIZE - 1);
	if (a->start > address)
		return;
	if (a->start == address) {
		if (!is_text || (a->is_text && !kallsyms_is_better(a, is_global, name, name_size)))
			return;
	}
	a->start = address;
	a->is_text = is_text;
	a->is_global = is_global;
	memcpy(a->name, name, name_size);
	a->name[name_size] = '\0';
	memcpy(a->module, module, module_size);
	a->module[module_size] = '\0';
}

static int kallsyms_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

static void kallsyms_line(struct kallsyms_pass *p, const char *line, size_t size)
{
	const char *end = line + size;
	const char *pos = line;
	uint64_t address = 0;

	for (; pos < end && kallsyms_hex(*pos) >= 0; pos++)
		address = address << 4 | (uint64_t)kallsyms_hex(*pos);
	if (pos == line || pos - line > 16 || end - pos < 4 || pos[0] != ' ' || pos[2] != ' ')
		return;
	if (address == 0)
		return;
	p->addressed++;
	char type = pos[1];
	const char *name = pos + 3;
	size_t name_size = 0;

	while (name + name_size < end && name[name_size] != '\t' && name[name_size] != ' ')
		name_size++;
	const char *module = memchr(name, '[', (size_t)(end - name));
	size_t module_size = 0;

	if (module) {
		module++;
		const char *close = memchr(module, ']', (size_t)(end - module));

		module_size = (size_t)((close ? close : end) - module);
	}
	if (name_size == 0 || memchr(name, '\0', name_size))
		return;
	kallsyms_put(p, address, type, name, name_size, module ? module : "", module_size);
}

size_t kallsyms_feed(struct kallsyms_pass *p, const char *text, size_t size)
{
	size_t used = 0;

	while (used < size) {
		const char *newline = memchr(text + used, '\n', size - used);

		if (!newline)
			break;
		p->lines++;
		kallsyms_line(p, text + used, (size_t)(newline - text) - used);
		used = (size_t)(newline - text) + 1;
	}
	return used;
}

bool kallsyms_end(struct kallsyms_pass *p)
{
	for (size_t i = 0; i < p->count; i++) {
		struct kallsyms_answer *a = &p->answers[i];

		if (a->start == 0 && i > 0)
			*a = p->answers[i - 1];
		a->found = a->is_text && p->addresses[i] - a->start < KALLSYMS_SPAN_MAX;
	}
	return p->addressed > 0;
}

int kallsyms_resolve(
	const char *path, const uint64_t *addresses, size_t count, struct kallsyms_answer *answers)
{
	char window[KALLSYMS_WINDOW_SIZE];
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct kallsyms_pass pass;
	size_t held = 0;

	if (fd < 0)
		return -errno;
	kallsyms_begin(&pass, addresses, count, answers);
	while (pass.lines < KALLSYMS_LINES_MAX) {
		ssize_t n = read(fd, window + held, KALLSYMS_WINDOW_SIZE - held);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		held += (size_t)n;
		size_t used = kallsyms_feed(&pass, window, held);

		if (used == 0 && held == KALLSYMS_WINDOW_SIZE)
			return -EBADMSG;
		memmove(window, window + used, held - used);
		held -= used;
		if (pass.addressed == 0 && pass.lines > KALLSYMS_HIDDEN_LINES)
			break;
	}
	return kallsyms_end(&pass) ? 0 : 1;
}
