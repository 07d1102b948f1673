/* See collect_verify.h. */
#include "agent/collect_verify.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "agent/bpf/sample.h"
#include "agent/bpf/skeleton.h"
#include "agent/collect_tables.h"
#include "base/def.h"

static int print_warnings(enum libbpf_print_level level, const char *fmt, va_list args)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, fmt, args) : 0;
}

/* The number of programs above the limit, or -errno. */
static int print_programs(const struct collect_bpf *skel, const char *unwind)
{
	struct bpf_program *p;
	int above = 0;

	bpf_object__for_each_program(p, skel->obj)
	{
		struct bpf_prog_info info = {0};
		__u32 size = sizeof(info);
		int r;

		if (!bpf_program__autoload(p))
			continue;
		r = bpf_obj_get_info_by_fd(bpf_program__fd(p), &info, &size);
		if (r < 0)
			return r;
		(void)printf("%s %s %u\n", unwind, bpf_program__name(p), info.verified_insns);
		above += info.verified_insns > COLLECT_VERIFY_MAX;
	}
	return above;
}

static int verify(bool with_tables)
{
	struct collect_bpf *skel = collect_bpf__open();
	int r = skel ? collect_tables_prepare(skel, with_tables, 0) : -errno;

	/* What a constant leaves out the verifier does not look at. */
	if (r == 0) {
		skel->rodata->filter_tgids = skel->rodata->filter_comms =
			skel->rodata->filter_uids = skel->rodata->filter_cgroups =
				FILTER_ONLY | FILTER_EXCEPT;
		skel->rodata->filter_has_v1 = true;
	}
	if (r == 0)
		r = collect_bpf__load(skel);
	if (r == 0)
		r = print_programs(skel, with_tables ? "cfi" : "fp");
	if (r < 0)
		(void)fprintf(stderr, "flame-agent: load programs: %s\n", strerrordesc_np(-r));
	else if (r > 0)
		(void)fprintf(stderr, "flame-agent: %d programs above %d instructions\n", r,
			COLLECT_VERIFY_MAX);
	collect_bpf__destroy(skel);
	return r;
}

int collect_verify_main(void)
{
	int cfi, fp;

	(void)libbpf_set_print(print_warnings);
	cfi = verify(true);
	fp = verify(false);
	return cfi == 0 && fp == 0 ? 0 : 1;
}
