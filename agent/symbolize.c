/*
 * The symbolizer's API: finds the mapping of each address, asks for what is not known yet, and
 * writes frames. Foreign files are read by the helper process only (helper.h).
 *
 * A frame's address is its function's start in the module's own address space, so that stacks which
 * differ only in the instruction are one stack, and is the same on every run. Kernel frames have
 * none: it would differ per boot.
 */
#include "agent/symbolize.h"

#include <errno.h>

#include "agent/symbolize_internal.h"
#include "base/def.h"

enum { SYMBOLIZE_LABEL_SIZE = 300 };

int symbolizer_new(const struct symbolizer_options *o, struct symbolizer **ret)
{
	struct helper_options helper = {
		.role = HELPER_NAMES,
		.memory_mb = o->helper_memory_mb,
		.timeout_ms = o->helper_timeout_ms,
	};
	_cleanup_(symbolizer_freep) struct symbolizer *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *o;
	int r = symbolize_process_init(s);

	if (r == 0)
		r = symbolize_file_init(s);
	if (r == 0)
		r = symbolize_cache_init(s);
	if (r == 0)
		r = symbolize_kernel_init(s);
	if (r == 0)
		r = debug_files_new(o->debug_dirs, o->debug_dir_count, &s->debug_files);
	if (r == 0 && o->fetched_dir)
		r = debug_files_add_dir(s->debug_files, o->fetched_dir);
	if (r == 0)
		r = helper_new(&helper, &s->helper);
	if (r < 0)
		return r;
	symbolize_file_add_vdso(s);
	*ret = steal_ptr(&s);
	return 0;
}

void symbolizer_free(struct symbolizer *s)
{
	if (!s)
		return;
	helper_free(s->helper);
	helper_free(s->lines);
	debug_files_free(s->debug_files);
	symbolize_process_done(s);
	symbolize_file_done(s);
	symbolize_cache_done(s);
	symbolize_kernel_done(s);
	free(s);
}

void symbolizer_freep(struct symbolizer **s)
{
	symbolizer_free(*s);
}

void symbolizer_see(struct symbolizer *s, const struct symbolizer_process *p,
	const uint64_t *user_pcs, uint32_t count)
{
	struct symbolize_entry *e = symbolize_process_get(s, p);

	if (!e)
		return;
	for (uint32_t i = 0; i < count; i++) {
		if (maps_find(&e->maps, user_pcs[i]))
			continue;
		/* Mapped since (dlopen), or no address at all: one more look tells. */
		(void)symbolize_process_refresh(s, e);
		return;
	}
}

/* A return address may be the first byte of the next function: look at the call instead. */
static uint64_t symbolize_adjust(
	const struct symbolizer *s, uint64_t pc, uint32_t i, bool is_call_first)
{
	bool is_call = i > 0 || is_call_first;

	return is_call && pc > 0 && !s->options.keep_pc ? pc - 1 : pc;
}

static uint64_t symbolize_offset(const struct maps_region *r, uint64_t address)
{
	return address - r->start + r->offset;
}

/* with_late: also those that may be known better by now. */
static void symbolize_queue_user(struct symbolizer *s, struct symbolize_entry *e,
	const uint64_t *pcs, uint32_t count, bool is_call_first, bool with_late)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t address = symbolize_adjust(s, pcs[i], i, is_call_first);
		struct maps_region *r = maps_find(&e->maps, address);
		struct symbolize_file *f = r ? symbolize_process_file(s, e, r) : NULL;
		if (!f)
			continue;
		uint64_t offset = symbolize_offset(r, address);
		const struct symbolize_symbol *known = symbolize_cache_get(s, f, offset);

		if (!known || (with_late && known->is_late))
			symbolize_cache_queue(s, f, offset);
	}
}

void symbolizer_user_prepare(struct symbolizer *s, const struct symbolizer_process *p,
	const uint64_t *pcs, uint32_t count, bool is_call_first)
{
	struct symbolize_entry *e = symbolize_process_get(s, p);

	if (e)
		symbolize_queue_user(s, e, pcs, count, is_call_first, true);
}

void symbolizer_kernel_prepare(struct symbolizer *s, const uint64_t *pcs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		symbolize_kernel_queue(s, symbolize_adjust(s, pcs[i], i, false));
}

void symbolizer_flush_prepare(struct symbolizer *s)
{
	symbolize_cache_ask(s);
	symbolize_kernel_ask(s);
}

/* The path as people know it: the kernel's " (deleted)" goes when the file is deleted, and stays
 * when it is part of a name. */
static size_t symbolize_path_size(const char *path, const struct symbolize_file *f)
{
	static const char mark[] = " (deleted)";
	size_t size = strlen(path);
	size_t mark_size = sizeof(mark) - 1;

	if (f && f->is_deleted && size > mark_size &&
		memcmp(path + size - mark_size, mark, mark_size) == 0)
		return size - mark_size;
	return size;
}

/* "[base+0xoff]"; the kernel's own "[vdso]" loses its brackets. */
static size_t symbolize_label(
	const char *path, size_t path_size, uint64_t offset, char label[SYMBOLIZE_LABEL_SIZE])
{
	const char *slash = memrchr(path, '/', path_size);
	const char *base = slash ? slash + 1 : path;
	size_t size = path_size - (size_t)(base - path);

	if (size >= 2 && base[0] == '[' && base[size - 1] == ']') {
		base++;
		size -= 2;
	}
	int n = snprintf(label, SYMBOLIZE_LABEL_SIZE, "[%.*s+0x%llx]", (int)MIN(size, 255), base,
		(unsigned long long)offset); /* fits: a base name has at most 255 bytes */

	return n < 0 ? 0 : (size_t)n;
}

struct symbolize_frame {
	const char *name;
	size_t name_size;
	const char *module;
	size_t module_size;
	const char *file;
	size_t file_size;
	uint32_t line;
	uint64_t address;
	enum frame_kind kind;
};

static int64_t symbolize_put(struct profile *profile, const struct symbolize_frame *f)
{
	int64_t name = profile_string(profile, f->name, f->name_size);
	int64_t module = name < 0 ? name : profile_string(profile, f->module, f->module_size);
	int64_t file = module < 0 ? module : profile_string(profile, f->file, f->file_size);

	if (file < 0)
		return file;
	struct frame frame = {
		.name = (uint32_t)name,
		.file = (uint32_t)file,
		.module = (uint32_t)module,
		.line = f->line,
		.kind = f->kind,
		.address = f->address,
	};
	return profile_frame(profile, &frame);
}

static const struct symbolize_symbol *symbolize_lookup(
	struct symbolizer *s, struct symbolize_file *f, uint64_t offset)
{
	const struct symbolize_symbol *symbol = symbolize_cache_get(s, f, offset);

	if (symbol || f->fd < 0 || symbolize_file_has_failed(f))
		return symbol;
	/* The cache was emptied between asking and now. */
	symbolize_cache_queue(s, f, offset);
	symbolize_cache_ask(s);
	return symbolize_cache_get(s, f, offset);
}

/* What an address without a name gets. label is where a made-up name may stand. */
static void symbolize_nameless(const struct maps *m, const struct maps_region *r,
	const struct symbolize_file *f, const struct symbolize_symbol *symbol, uint64_t address,
	char label[SYMBOLIZE_LABEL_SIZE], struct symbolize_frame *frame)
{
	if (!r)
		return;
	const char *path = maps_path(m, r);

	if (r->kind == MAPS_ANON || r->kind == MAPS_SPECIAL) {
		frame->name = r->kind == MAPS_ANON ? "[anon]" : path;
		frame->name_size = strlen(frame->name);
		return;
	}
	frame->module = path;
	frame->module_size = symbolize_path_size(path, f);
	frame->address = symbol && symbol->has_vaddr ? symbol->vaddr : symbolize_offset(r, address);
	frame->name = label;
	frame->name_size = symbolize_label(path, frame->module_size, frame->address, label);
}

/* Where frames go: the first room of them are kept. */
struct symbolize_out {
	struct profile *profile;
	uint32_t room, count;
	uint32_t *frames;
};

static int symbolize_out_put(struct symbolize_out *out, const struct symbolize_frame *frame)
{
	int64_t id;

	if (out->count++ >= out->room)
		return 0;
	id = symbolize_put(out->profile, frame);
	if (id < 0)
		return (int)id;
	out->frames[out->count - 1] = (uint32_t)id;
	return 0;
}

static int symbolize_out_names(struct symbolizer *s, struct symbolize_out *out,
	const struct symbolize_symbol *symbol, struct symbolize_frame *frame)
{
	bool by_function = s->options.lines == SYMBOLIZER_LINES_FUNCTION;
	int r = 0;

	frame->address = symbol->start;
	frame->kind = symbol->kind == NAMES_GO ? FRAME_GO : FRAME_NATIVE;
	s->stats.inlined += symbol->name_count - 1U;
	for (size_t i = 0; r == 0 && i < symbol->name_count; i++) {
		const struct symbolize_name *n = &symbol->names[i];

		frame->name = n->name;
		frame->name_size = n->name_size;
		frame->file = n->file;
		frame->file_size = n->file_size;
		frame->line = by_function ? n->start_line : n->line;
		r = symbolize_out_put(out, frame);
	}
	return r;
}

/* The frames of one address. */
static int symbolize_address(struct symbolizer *s, struct symbolize_entry *e, uint64_t address,
	struct symbolize_out *out)
{
	struct maps_region *r = e ? maps_find(&e->maps, address) : NULL;
	struct symbolize_frame frame = {
		.name = "[unknown]",
		.name_size = strlen("[unknown]"),
		.module = "",
		.file = "",
		.kind = FRAME_NATIVE,
	};
	struct symbolize_file *f = r && r->kind != MAPS_ANON && r->kind != MAPS_SPECIAL
					   ? symbolize_process_file(s, e, r)
					   : NULL;
	const struct symbolize_symbol *symbol =
		f ? symbolize_lookup(s, f, symbolize_offset(r, address)) : NULL;
	char label[SYMBOLIZE_LABEL_SIZE];

	if (e && e->is_gone && e->maps.count == 0) {
		frame.name = "[exited]";
		frame.name_size = strlen("[exited]");
	}
	s->stats.frames++;
	if (symbol && symbol->name_count > 0) {
		s->stats.resolved++;
		frame.module = maps_path(&e->maps, r);
		frame.module_size = symbolize_path_size(frame.module, f);
		return symbolize_out_names(s, out, symbol, &frame);
	}
	s->stats.unresolved++;
	if (e)
		symbolize_nameless(&e->maps, r, f, symbol, address, label, &frame);
	return symbolize_out_put(out, &frame);
}

int symbolizer_user(struct symbolizer *s, struct profile *profile,
	const struct symbolizer_process *p, const uint64_t *pcs, uint32_t count, bool is_call_first,
	uint32_t room, uint32_t *ret_frames)
{
	struct symbolize_entry *e = symbolize_process_get(s, p);
	struct symbolize_out out = {.profile = profile, .room = room, .frames = ret_frames};

	if (e) {
		symbolize_queue_user(s, e, pcs, count, is_call_first, false);
		symbolize_cache_ask(s);
	}
	for (uint32_t i = 0; i < count; i++) {
		int r = symbolize_address(
			s, e, symbolize_adjust(s, pcs[i], i, is_call_first), &out);

		if (r < 0)
			return r;
	}
	return (int)out.count;
}

int symbolizer_kernel(struct symbolizer *s, struct profile *profile, const uint64_t *pcs,
	uint32_t count, uint32_t *ret_frames)
{
	symbolizer_kernel_prepare(s, pcs, count);
	symbolize_kernel_ask(s);
	for (uint32_t i = 0; i < count; i++) {
		const struct symbolize_kernel_symbol *k =
			symbolize_kernel_get(s, symbolize_adjust(s, pcs[i], i, false));
		struct symbolize_frame frame = {
			.name = k && k->name ? k->name : "[kernel]",
			.module = k ? k->module : "",
			.file = "",
			.kind = FRAME_KERNEL,
		};

		frame.name_size = strlen(frame.name);
		frame.module_size = strlen(frame.module);
		int64_t id = symbolize_put(profile, &frame);
		if (id < 0)
			return (int)id;
		ret_frames[i] = (uint32_t)id;
		s->stats.kernel_frames++;
		if (!k || !k->name)
			s->stats.kernel_unresolved++;
	}
	return (int)count;
}

int symbolizer_missing(const struct symbolizer *s, struct buf *out)
{
	return debug_files_missing(s->debug_files, out);
}

struct symbolizer_stats symbolizer_stats(const struct symbolizer *s)
{
	struct symbolizer_stats stats = s->stats;

	stats.helper_restarts = helper_restarts(s->helper);
	stats.lines_restarts = helper_restarts(s->lines);
	return stats;
}

pid_t symbolizer_helper_pid(const struct symbolizer *s)
{
	return helper_pid(s->helper);
}

pid_t symbolizer_lines_pid(const struct symbolizer *s)
{
	return helper_pid(s->lines);
}

struct helper *symbolizer_helper(const struct symbolizer *s)
{
	return s->helper;
}
