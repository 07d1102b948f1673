/*
 * libdw's walk of the same bytes: its own reading of the maps, of .eh_frame and .debug_frame, its own rules.
 * Where there is no CFI it follows frame pointers, too (elfutils, backends/x86_64_unwind.c), but believes any
 * return address. No separate debug files: what the process has mapped must do.
 */
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>

#include "base/def.h"
#include "tests/e2e/unwind_differential.h"

enum { THREAD = 1 };

static Dwfl *dwfl;
static struct diff_sample *sample;
static int vdso_fd = -1;

static int find_elf(Dwfl_Module *mod, void **user, const char *name, Dwarf_Addr base,
	char **file_name, Elf **elf)
{
	if (name[0] != '[')
		return dwfl_linux_proc_find_elf(mod, user, name, base, file_name, elf);
	*file_name = NULL;
	return vdso_fd < 0 ? -1 : fcntl(vdso_fd, F_DUPFD_CLOEXEC, 3);
}

static int find_debuginfo(Dwfl_Module *mod _unused_, void **user _unused_,
	const char *name _unused_, Dwarf_Addr base _unused_, const char *file_name _unused_,
	const char *link _unused_, GElf_Word crc _unused_, char **ret _unused_)
{
	return -1;
}

static pid_t next_thread(Dwfl *d _unused_, void *arg _unused_, void **thread)
{
	if (*thread)
		return 0;
	*thread = (void *)&sample;
	return THREAD;
}

static bool get_thread(Dwfl *d _unused_, pid_t tid, void *arg _unused_, void **thread)
{
	*thread = (void *)&sample;
	return tid == THREAD;
}

static bool memory_read(Dwfl *d _unused_, Dwarf_Addr address, Dwarf_Word *ret, void *arg _unused_)
{
	return diff_read_stack(sample, ret, sizeof(*ret), address) == 0;
}

static bool set_registers(Dwfl_Thread *thread, void *arg _unused_)
{
	Dwarf_Word regs[DIFF_REGS + 1];

	memcpy(regs, sample->regs, sizeof(sample->regs));
	regs[DIFF_REGS] = sample->pc; /* DWARF register 16 is the return address */
	return dwfl_thread_state_registers(thread, 0, DIFF_REGS + 1, regs);
}

static const Dwfl_Callbacks dwfl_callbacks = {
	.find_elf = find_elf, .find_debuginfo = find_debuginfo};
static const Dwfl_Thread_Callbacks thread_callbacks = {.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = memory_read,
	.set_initial_registers = set_registers};

int diff_libdw_space(const struct diff_space *space)
{
	_cleanup_(fclosep) FILE *text = fmemopen(space->text, space->text_size, "r");

	if (!text)
		return -errno;
	dwfl_end(dwfl);
	dwfl = dwfl_begin(&dwfl_callbacks);
	if (!dwfl)
		return -ENOMEM;
	vdso_fd = space->vdso_fd;
	dwfl_report_begin(dwfl);
	if (dwfl_linux_proc_maps_report(dwfl, text) != 0)
		return -EBADMSG;
	for (size_t i = 0; i < space->maps.count; i++) {
		const struct maps_region *r = &space->maps.regions[i];

		if (r->kind == MAPS_VDSO)
			dwfl_report_module(dwfl, "[vdso]", r->start, r->end);
	}
	dwfl_report_end(dwfl, NULL, NULL);
	if (!dwfl_attach_state(dwfl, NULL, THREAD, &thread_callbacks, (void *)&sample)) {
		fprintf(stderr, "libdw: %s\n", dwfl_errmsg(-1));
		return -EINVAL;
	}
	return 0;
}

static int take_frame(Dwfl_Frame *frame, void *arg)
{
	struct diff_walk *w = arg;
	Dwarf_Addr pc;

	if (w->count == DIFF_FRAMES_MAX || !dwfl_frame_pc(frame, &pc, NULL))
		return DWARF_CB_ABORT;
	w->pcs[w->count++] = pc;
	return DWARF_CB_OK;
}

void diff_libdw_walk(struct diff_sample *s, struct diff_walk *ret)
{
	sample = s;
	ret->count = 0;
	int r = dwfl_getthread_frames(dwfl, THREAD, take_frame, ret);

	ret->is_complete = r == 0;
	ret->end = r == 0 ? "root" : r == DWARF_CB_ABORT ? "depth" : dwfl_errmsg(-1);
	if (!ret->end)
		ret->end = "an error without name";
}
