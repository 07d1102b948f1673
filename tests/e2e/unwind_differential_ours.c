/*
 * Our walk: the step that the kernel runs, over tables that cfi_compile() makes of every mapped file, laid
 * out as the keeper does. A chunk is made when the step first misses it, and kept while the program runs.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/table.h"
#include "agent/cfi.h"
#include "base/def.h"
#include "tests/e2e/unwind_differential.h"

enum { FILES_MAX = 512, SEGMENTS_MAX = 16, LIST_AT = 64 };

struct file {
	char *path; /* NULL: the vdso's */
	int fd;
	struct cfi *c;   /* NULL: nothing is said */
	uint32_t reason; /* table_ref if there is no c */
	uint32_t dir, first_chunk, chunk_count;
	Elf64_Phdr segments[SEGMENTS_MAX];
	size_t segment_count;
};

static struct file files[FILES_MAX];
static size_t file_count;
static uint8_t *slabs[TABLE_SLABS_MAX]; /* 0 has the mapping list */
static uint32_t slab_count = 1, slab_fill;
static uint32_t dirs[TABLE_DIRS_MAX], dir_count = 1;
static uint32_t slab_used[TABLE_SLABS_MAX];
static struct unwind_rule rules[TABLE_RULES_MAX];
static size_t placed_rules;
static struct table_process process;
bool diff_ours_fault;
static struct diff_sample *sample;
static struct {
	uint64_t chunks, rows, bytes, broken;
} made;

struct unwind_state;
static int read_text(uint8_t *dst, uint64_t address);

#define UNWIND_SLAB(index)                 ((index) < TABLE_SLABS_MAX ? (const __u8 *)slabs[index] : NULL)
#define UNWIND_DIR(index)                  ((index) < TABLE_DIRS_MAX ? &dirs[index] : NULL)
#define UNWIND_RULE(index)                 ((index) < TABLE_RULES_MAX ? &rules[index] : NULL)
#define UNWIND_USED(index)                 ((index) < TABLE_SLABS_MAX ? &slab_used[index] : NULL)
#define UNWIND_READ(s, dst, size, address) diff_read_stack(sample, dst, size, address)
#define UNWIND_TEXT(s, dst, address)       read_text(dst, address)
#include "agent/bpf/unwind_cfi.h"

static const char *const end_names[SAMPLE_END_COUNT] = {"root", "no_fp", "unreadable", "depth",
	"no_user", "no_table", "no_mapping", "no_cfi", "broken_cfi", "table_full", "unsupported",
	"bad_cfa", "short_copy"};

static const struct table_mapping *mappings(void)
{
	return (const struct table_mapping *)(slabs[0] + LIST_AT);
}

/* A byte of code, out of the file that is mapped there. */
static int read_text(uint8_t *dst, uint64_t address)
{
	for (size_t i = 0; i < process.count; i++) {
		const struct table_mapping *m = &mappings()[i];

		if (address < m->start || address >= m->end)
			continue;
		for (size_t k = 0; k < file_count; k++) {
			const struct file *f = &files[k];
			const Elf64_Phdr *p = f->segments;

			if (m->dir < f->dir || m->dir >= f->dir + f->chunk_count)
				continue;
			for (; p < f->segments + f->segment_count; p++) {
				uint64_t into = address - m->bias - p->p_vaddr;

				if (into < p->p_filesz)
					return pread(f->fd, dst, 1, (off_t)(p->p_offset + into)) ==
							       1
						       ? 0
						       : -1;
			}
		}
	}
	return -1;
}

static uint16_t place_rule(const struct unwind_rule *rule)
{
	for (size_t i = 0; i < placed_rules && !diff_ours_fault; i++)
		if (memcmp(&rules[i], rule, sizeof(*rule)) == 0)
			return (uint16_t)i;
	if (placed_rules == TABLE_RULES_MAX)
		return TABLE_RULE_NONE;
	rules[placed_rules] = *rule;
	if (diff_ours_fault && placed_rules % 4 == 3)
		rules[placed_rules].cfa_offset += 8;
	return (uint16_t)placed_rules++;
}

static uint32_t place_chunk(const struct cfi_chunk *c)
{
	static uint16_t rule_map[TABLE_RULES_MAX];
	size_t size = cfi_packed_size(c);

	if (slab_count == 1 || slab_fill + size > TABLE_SLAB_SIZE) {
		if (slab_count == TABLE_SLABS_MAX || size > TABLE_SLAB_SIZE - TABLE_REF_MIN)
			return TABLE_FULL;
		slabs[slab_count] = aligned_alloc(64, TABLE_SLAB_SIZE);
		if (!slabs[slab_count++])
			return TABLE_FULL;
		slab_fill = TABLE_REF_MIN;
	}
	for (size_t i = 0; i < c->rule_count; i++)
		rule_map[i] = place_rule(&c->rules[i]);
	cfi_pack(c, rule_map, slabs[slab_count - 1] + slab_fill, size);
	uint32_t ref = (slab_count - 1) << TABLE_SLAB_SHIFT | slab_fill;

	slab_fill += (uint32_t)size;
	made.chunks++;
	made.rows += c->row_count;
	made.bytes += size;
	return ref;
}

static void make_chunk(uint32_t dir, uint32_t index)
{
	static struct cfi_chunk chunk;
	const struct file *f = files;

	while (dir < f->dir || dir >= f->dir + f->chunk_count)
		f++; /* there is one: only files have directory entries */
	if (!f->c) {
		dirs[dir] = f->reason;
		return;
	}
	int r = cfi_compile(f->c, index, &chunk);

	if (r < 0) {
		made.broken++;
		fprintf(stderr, "cfi %s chunk %#x: %s\n", f->path ? f->path : "vdso", index,
			strerror(-r));
	}
	dirs[dir] = r < 0                  ? TABLE_BROKEN
		    : chunk.row_count == 0 ? TABLE_NO_CFI
					   : place_chunk(&chunk);
}

/* The executable segments. */
static void read_segments(struct file *f)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;

	if (pread(f->fd, &e, sizeof(e), 0) != sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0)
		return;
	for (size_t i = 0; i < e.e_phnum; i++) {
		if (pread(f->fd, &p, sizeof(p), (off_t)(e.e_phoff + i * sizeof(p))) != sizeof(p))
			return;
		if (p.p_type == PT_LOAD && (p.p_flags & PF_X) && f->segment_count < SEGMENTS_MAX)
			f->segments[f->segment_count++] = p;
	}
}

static struct file *get_file(const char *path, int vdso_fd)
{
	const char *why = NULL;
	uint64_t first = UINT64_MAX, end = 0;

	for (size_t i = 0; i < file_count; i++)
		if (path ? files[i].path && strcmp(files[i].path, path) == 0 : !files[i].path)
			return &files[i];
	if (file_count == FILES_MAX)
		return NULL;
	struct file *f = &files[file_count++];

	*f = (struct file){.path = path ? strdup(path) : NULL, .reason = TABLE_NO_CFI};
	f->fd = path ? open(path, O_RDONLY | O_CLOEXEC) : fcntl(vdso_fd, F_DUPFD_CLOEXEC, 3);
	if (f->fd < 0)
		return f;
	read_segments(f);
	int r = cfi_open(f->fd, &why, &f->c);

	if (r < 0)
		f->reason = r == -ENODATA ? TABLE_NO_CFI : TABLE_BROKEN;
	for (size_t i = 0; i < f->segment_count; i++) {
		first = MIN(first, f->segments[i].p_vaddr);
		end = MAX(end, f->segments[i].p_vaddr + f->segments[i].p_memsz);
	}
	if (f->segment_count == 0 || (end - first) >> TABLE_CHUNK_SHIFT > 65536)
		return f;
	f->first_chunk = (uint32_t)(first >> TABLE_CHUNK_SHIFT);
	f->chunk_count = (uint32_t)((end - 1) >> TABLE_CHUNK_SHIFT) - f->first_chunk + 1;
	if (dir_count + f->chunk_count > TABLE_DIRS_MAX) {
		f->chunk_count = 0;
		return f;
	}
	f->dir = dir_count;
	dir_count += f->chunk_count;
	return f;
}

static void describe(const struct file *f, const struct maps_region *r, struct table_mapping *m)
{
	for (size_t i = 0; f && f->chunk_count > 0 && i < f->segment_count; i++) {
		const Elf64_Phdr *p = &f->segments[i];
		uint64_t page = p->p_offset & ~4095ULL;

		if (r->offset < page || r->offset >= p->p_offset + p->p_filesz)
			continue;
		m->bias = r->start - r->offset + p->p_offset - p->p_vaddr;
		m->dir = f->dir;
		m->first_chunk = f->first_chunk;
		m->chunk_count = f->chunk_count;
		return;
	}
}

int diff_ours_space(const struct diff_space *space)
{
	if (!slabs[0])
		slabs[0] = aligned_alloc(64, TABLE_SLAB_SIZE);
	if (!slabs[0])
		return -ENOMEM;
	rules[TABLE_RULE_END].cfa = UNWIND_CFA_END;
	placed_rules = MAX(placed_rules, (size_t)TABLE_RULE_FIRST);
	size_t count = MIN(space->maps.count, (size_t)TABLE_MAPPINGS_MAX);

	process = (struct table_process){
		.list = LIST_AT, .count = (uint32_t)count, .final_until_ns = 2};
	for (size_t i = 0; i < count; i++) {
		const struct maps_region *r = &space->maps.regions[i];
		struct table_mapping m = {.start = r->start, .end = r->end};

		if (r->kind == MAPS_FILE)
			describe(get_file(maps_path(&space->maps, r), -1), r, &m);
		else if (r->kind == MAPS_VDSO && space->vdso_fd >= 0)
			describe(get_file(NULL, space->vdso_fd), r, &m);
		else
			m.flags = TABLE_MAPPING_ANON;
		memcpy(slabs[0] + LIST_AT + i * sizeof(m), &m, sizeof(m));
	}
	return 0;
}

void diff_ours_walk(struct diff_sample *s, struct diff_walk *ret)
{
	struct unwind_state u = {.pc = s->pc,
		.sp = s->regs[UNWIND_REG_SP],
		.fp = s->regs[UNWIND_REG_FP],
		.regs_known = 1,
		.is_call = s->orig_ax >= 0,
		.now_s = 1,
		.now_ns = 1,
		.process = process};
	int end = UNWIND_GO_ON;

	sample = s;
	memcpy(u.regs, s->regs, sizeof(u.regs));
	ret->count = 0;
	while (end == UNWIND_GO_ON && ret->count < DIFF_FRAMES_MAX) {
		ret->pcs[ret->count++] = u.pc;
		while ((end = unwind_step_cfi(&u)) == UNWIND_MISS)
			make_chunk(u.miss.dir, u.miss.chunk);
	}
	if (end == UNWIND_GO_ON)
		end = SAMPLE_END_DEPTH;
	ret->is_complete = end == SAMPLE_END_ROOT;
	ret->end = end_names[end];
}

void diff_ours_print(FILE *f)
{
	fprintf(f, "tables: %zu files, %lu chunks, %lu rows, %lu bytes, %lu broken\n", file_count,
		made.chunks, made.rows, made.bytes, made.broken);
}
