/* maps: the text of /proc/PID/maps, with hostile paths. */
#include "agent/maps.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <unistd.h>

static void feed(struct maps *m, const char *text)
{
	size_t used = 0;

	maps_init(m);
	cr_assert_eq(maps_feed(m, text, strlen(text), &used), 0);
	cr_assert_eq(used, strlen(text));
}

Test(maps, keeps_only_what_is_executable)
{
	_cleanup_(maps_done) struct maps m;

	feed(&m, "1000-2000 r--p 00000000 fe:01 12   /bin/a\n"
		 "2000-4000 r-xp 00001000 fe:01 12   /bin/a\n"
		 "4000-5000 rw-p 00003000 fe:01 12   /bin/a\n"
		 "6000-7000 --xp 00000000 00:00 0    [vsyscall]\n");
	cr_assert_eq(m.count, 2);
	cr_assert_eq(m.lines, 4);
	cr_assert_eq(m.skipped, 0);
	cr_assert_eq(m.regions[0].start, 0x2000);
	cr_assert_eq(m.regions[0].end, 0x4000);
	cr_assert_eq(m.regions[0].offset, 0x1000);
	cr_assert_eq(m.regions[0].dev_major, 0xfe);
	cr_assert_eq(m.regions[0].dev_minor, 1);
	cr_assert_eq(m.regions[0].inode, 12);
	cr_assert_eq(m.regions[0].kind, MAPS_FILE);
	cr_assert_eq(m.regions[1].kind, MAPS_SPECIAL);
}

Test(maps, finds_the_region_of_an_address_and_none_beside_it)
{
	_cleanup_(maps_done) struct maps m;

	feed(&m, "1000-2000 r-xp 0 1:1 1 /a\n3000-4000 r-xp 0 1:1 2 /b\n");
	cr_assert_null(maps_find(&m, 0xfff));
	cr_assert_eq(maps_find(&m, 0x1000), &m.regions[0]);
	cr_assert_eq(maps_find(&m, 0x1fff), &m.regions[0]);
	cr_assert_null(maps_find(&m, 0x2000));
	cr_assert_eq(maps_find(&m, 0x3000), &m.regions[1]);
	cr_assert_null(maps_find(&m, UINT64_MAX));
}

Test(maps, takes_the_rest_of_the_line_as_path)
{
	_cleanup_(maps_done) struct maps m;

	feed(&m, "1000-2000 r-xp 00000000 00:2a 77    /sp ace/my\\012bin (deleted)\n"
		 "3000-4000 r-xp 00000000 00:2a 78\n");
	cr_assert_str_eq(maps_path(&m, &m.regions[0]), "/sp ace/my\nbin (deleted)");
	cr_assert_str_eq(maps_path(&m, &m.regions[1]), "");
}

Test(maps, tells_generated_code_from_the_kernels_own_mappings)
{
	_cleanup_(maps_done) struct maps m;

	feed(&m, "1000-2000 rwxp 00000000 00:00 0\n"
		 "2000-3000 r-xp 00000000 00:00 0    [anon:JIT]\n"
		 "3000-4000 r-xp 00000000 00:00 0    [vdso]\n"
		 "4000-5000 r-xp 00000000 00:00 0    [uprobes]\n"
		 "5000-6000 r-xp 00000000 00:01 9    [vdso]\n");
	cr_assert_eq(m.count, 5);
	cr_assert_eq(m.regions[0].kind, MAPS_ANON);
	cr_assert_eq(m.regions[1].kind, MAPS_ANON);
	cr_assert_eq(m.regions[2].kind, MAPS_VDSO);
	cr_assert_eq(m.regions[3].kind, MAPS_SPECIAL);
	cr_assert_eq(m.regions[4].kind, MAPS_FILE, "a file may have any name");
}

Test(maps, counts_malformed_lines_and_goes_on)
{
	_cleanup_(maps_done) struct maps m;

	feed(&m, "\n"
		 "nonsense\n"
		 "2000-1000 r-xp 0 1:1 1 /backwards\n"
		 "11111111111111111-2000 r-xp 0 1:1 1 /overflow\n"
		 "1000-2000 r-xp ffffffffffffffff 1:1 1 /wraps\n"
		 "1000-2000 r-xp 0 1:1\n"
		 "1000-2000 r-xp 0 1:1 1 /good\n"
		 "1800-3000 r-xp 0 1:1 1 /overlaps\n");
	cr_assert_eq(m.count, 1);
	cr_assert_eq(m.skipped, 7);
	cr_assert_str_eq(maps_path(&m, &m.regions[0]), "/good");
}

Test(maps, leaves_an_unfinished_line_to_the_next_call)
{
	_cleanup_(maps_done) struct maps m;
	const char text[] = "1000-2000 r-xp 0 1:1 1 /a\n3000-4000 r-xp 0 1:1 2 /b";
	size_t used = 0;

	maps_init(&m);
	cr_assert_eq(maps_feed(&m, text, sizeof(text) - 1, &used), 0);
	cr_assert_eq(used, 26);
	cr_assert_eq(m.count, 1);
}

Test(maps, stops_at_its_limit_of_regions)
{
	_cleanup_(maps_done) struct maps m;
	size_t used = 0;

	maps_init(&m);
	for (unsigned int i = 1; i <= MAPS_REGIONS_MAX + 10; i++) {
		char line[64];
		int n = snprintf(line, sizeof(line), "%x000-%x800 r-xp 0 1:1 1 /a\n", i, i);

		cr_assert_eq(maps_feed(&m, line, (size_t)n, &used), 0);
	}
	cr_assert_eq(m.count, MAPS_REGIONS_MAX);
	cr_assert_eq(m.skipped, 10);
}

Test(maps, reads_its_own_process)
{
	_cleanup_(maps_done) struct maps m;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	maps_init(&m);
	cr_assert_eq(maps_read_fd(&m, fd), 0);
	(void)close(fd);
	const struct maps_region *r = maps_find(&m, (uint64_t)(uintptr_t)&maps_read_fd);
	cr_assert_not_null(r);
	cr_assert_not_null(strstr(maps_path(&m, r), "unit-agent"));
	cr_assert_eq(m.skipped, 0);
}

/* "start-end+offset:name ..." */
static const char *drawn(const struct maps *m)
{
	static char text[512];

	text[0] = '\0';
	for (size_t i = 0; i < m->count; i++) {
		const struct maps_region *r = &m->regions[i];
		size_t used = strlen(text);

		(void)snprintf(text + used, sizeof(text) - used, "%s%llx-%llx+%llx:%s",
			i ? " " : "", (unsigned long long)r->start, (unsigned long long)r->end,
			(unsigned long long)r->offset, maps_path(m, r));
	}
	return text;
}

static void put(struct maps *m, uint64_t start, uint64_t end, const char *name, bool replaces)
{
	struct maps_region r = {.start = start, .end = end, .inode = 1};

	cr_assert_eq(maps_put(m, &r, name, strlen(name), replaces), 0);
}

Test(maps, what_is_mapped_over_something_takes_its_place)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	put(&m, 0x10, 0x40, "a", true);
	put(&m, 0x20, 0x30, "b", true);
	cr_assert_str_eq(drawn(&m), "10-20+0:a 20-30+0:b 30-40+20:a");
	put(&m, 0x8, 0x18, "c", true);
	cr_assert_str_eq(drawn(&m), "8-18+0:c 18-20+8:a 20-30+0:b 30-40+20:a");
	put(&m, 0x19, 0x38, "d", true);
	cr_assert_str_eq(drawn(&m), "8-18+0:c 18-19+8:a 19-38+0:d 38-40+28:a");
	put(&m, 0, 0x100, "e", true);
	cr_assert_str_eq(drawn(&m), "0-100+0:e");
}

Test(maps, what_fills_leaves_what_is_there)
{
	_cleanup_(maps_done) struct maps m;

	maps_init(&m);
	put(&m, 0x10, 0x20, "a", false);
	put(&m, 0x30, 0x40, "b", false);
	put(&m, 0x8, 0x50, "c", false);
	cr_assert_str_eq(drawn(&m), "8-10+0:c 10-20+0:a 20-30+18:c 30-40+0:b 40-50+38:c");
	put(&m, 0x18, 0x38, "d", false);
	cr_assert_eq(m.count, 5);
}

Test(maps, what_is_mapped_of_a_file_behind_generated_code_is_kept_beside)
{
	static const char text[] = "1000-2000 r--p 00000000 08:01 7 /a\n"
				   "2000-3000 r-xp 00000000 00:00 0 \n"
				   "3000-4000 rw-p 00000000 00:00 0 \n"
				   "4000-5000 r--p 00003000 08:01 7 /a\n"
				   "5000-6000 rw-p 00004000 08:01 7 /a\n"
				   "6000-7000 r-xp 00000000 00:00 0 \n"
				   "900000-901000 r--p 00000000 08:01 8 /b\n";
	_cleanup_(maps_done) struct maps m;
	size_t used;

	maps_init(&m);
	cr_assert_eq(maps_feed(&m, text, strlen(text), &used), 0);
	cr_expect_eq(m.count, 2, "it is no code");
	cr_assert_eq(m.beside_count, 1, "only the first, and only within a huge page");
	cr_expect_eq(m.beside[0].start, 0x4000);
	cr_expect_eq(m.beside[0].offset, 0x3000);
	cr_expect_str_eq(maps_path(&m, &m.beside[0]), "/a");
	cr_expect_null(maps_find(&m, 0x4000));
}
