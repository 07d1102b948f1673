/* What the kernel's %pS prints, and what is no name. */
#include <criterion/criterion.h>

#include "agent/kernel_names.h"

static void parses(const char *text, const char *name, const char *module)
{
	struct kernel_name k;

	cr_assert(kernel_names_parse(text, &k), "%s", text);
	cr_assert_eq(k.name_size, strlen(name));
	cr_assert_eq(memcmp(k.name, name, k.name_size), 0);
	cr_assert_eq(k.module_size, strlen(module));
	cr_assert_eq(memcmp(k.module, module, k.module_size), 0);
}

Test(kernel_names, a_symbol_parses_with_and_without_module)
{
	parses("vfs_read+0x1c/0x90", "vfs_read", "");
	parses("ext4_readdir+0x0/0x1 [ext4]", "ext4_readdir", "ext4");
	parses("f.isra.0+0xa/0xb [m 0123abcd]", "f.isra.0", "m");
	parses("bpf_prog_6deef7357e7b4530_x+0x3/0x40 [bpf]", "bpf_prog_6deef7357e7b4530_x", "bpf");
}

Test(kernel_names, everything_else_is_no_name)
{
	const char *const bad[] = {"", "0xffffffff81000000", "vfs_read", "vfs_read+0x1c",
		"vfs_read+0x1c/", "+0x1/0x2", "vfs_read+0x1c/0x90 [", "vfs_read+0x1c/0x90 []",
		"vfs_read+0x1c/0x90 [ext4", "vfs_read+0x1c/0x90 [ext4] more", "vfs_read+0x1c/0x90x",
		"vfs_read+0x90/0x90"};
	struct kernel_name k;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(kernel_names_parse(bad[i], &k), "%s", bad[i]);
}
