/* What a cgroup's path says of who runs there, and where cgroup2 is mounted. */
#include <criterion/criterion.h>
#include <errno.h>

#include "agent/cgroup.h"
#include "base/def.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

Test(cgroup, a_container_is_found_by_what_runtimes_call_its_cgroup)
{
	static const char *const paths[] = {
		"/system.slice/docker-" ID ".scope",
		"/docker/" ID,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/"
		"cri-containerd-" ID ".scope",
		"/kubepods/besteffort/pod1/" ID,
		"/kubepods.slice/crio-" ID ".scope",
		"/machine.slice/libpod-" ID ".scope/container",
		"/system.slice/containerd.service/kubepods-pod1/" ID "/init.scope",
		"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" ID,
	};
	char id[CGROUP_CONTAINER_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		cr_assert(cgroup_container(paths[i], id), "%s", paths[i]);
		cr_assert_str_eq(id, ID);
	}
}

Test(cgroup, what_only_resembles_a_container_is_none)
{
	static const char *const paths[] = {"", "/", "/docker/0123", "/docker/" ID "0",
		"/system.slice/docker-" ID ".service", "/system.slice/foo-" ID ".scope",
		"/kubepods-pod1.slice:crio-conmon-" ID, "/crio-conmon-" ID ".scope",
		"/docker/0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"};
	char id[CGROUP_CONTAINER_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		cr_assert_not(cgroup_container(paths[i], id), "%s", paths[i]);
}

Test(cgroup, the_innermost_service_is_the_unit)
{
	static const struct {
		const char *path, *unit;
	} cases[] = {
		{"/system.slice/nginx.service", "nginx.service"},
		{"/system.slice/system-pg.slice/pg@14-main.service", "pg@14-main.service"},
		{"/system.slice/nginx.service/workers/a", "nginx.service"},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/dbus.service",
			"dbus.service"},
	};
	char unit[CGROUP_UNIT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cr_assert(cgroup_unit(cases[i].path, unit), "%s", cases[i].path);
		cr_assert_str_eq(unit, cases[i].unit);
	}
}

Test(cgroup, sessions_scopes_managers_and_containers_are_no_units)
{
	static const char *const paths[] = {
		"/",
		"",
		"/init.scope",
		"/user.slice/user-0.slice/session-4.scope",
		"/user.slice/user-1000.slice/user@1000.service/init.scope",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/app-term-12.scope",
		"/system.slice/run-u12.service",
		"/system.slice/run-r0123456789abcdef0123456789abcdef.service",
		"/system.slice/run-p12-i13.service",
		("/system.slice/containerd.service/kubepods-pod1/" ID),
		"/system.slice/.service",
	};
	char unit[CGROUP_UNIT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		cr_assert_not(cgroup_unit(paths[i], unit), "%s is %s", paths[i], unit);
	cr_assert(cgroup_unit("/system.slice/run-parts.service", unit), "somebody's own name");
}

Test(cgroup, the_mount_is_found_on_unified_and_hybrid_hosts)
{
	char mount[CGROUP_PATH_MAX];

	cr_assert(
		cgroup_find_mount("22 1 0:20 / /proc rw - proc proc rw\n"
				  "35 24 0:30 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
			mount));
	cr_assert_str_eq(mount, "/sys/fs/cgroup");
	cr_assert(cgroup_find_mount("34 25 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
				    "35 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 none rw",
		mount));
	cr_assert_str_eq(mount, "/sys/fs/cgroup/unified");
	cr_assert_not(cgroup_find_mount("34 25 0:29 / /a rw - cgroup cgroup rw\n", mount));
	cr_assert_not(cgroup_find_mount("", mount));
	cr_assert_not(cgroup_find_mount("a - cgroup2 ", mount));
}

Test(cgroup, an_id_and_its_path_lead_to_each_other)
{
	struct cgroups *c;
	struct buf why = BUF_INIT(1024);
	char path[CGROUP_PATH_MAX];
	struct cgroup_id id;
	int r;

	cr_assert_eq(cgroups_new(&c), 0);
	r = cgroups_id(c, "/", &why, &id);
	if (r == 0 && cgroups_path(c, id.id, path) == 0)
		cr_assert_str_eq(path, "/");
	else
		cr_skip_test("no cgroup2 mount, or no right to open by handle");
	cr_assert_eq(cgroups_id(c, "/no/such", &why, &id), -ENOENT);
	cr_assert_eq(cgroups_id(c, "/a/../../../etc", &why, &id), -EINVAL);
	cr_assert_eq(cgroups_id(c, "relative", &why, &id), -EINVAL);
	cr_assert_eq(cgroups_id(c, "18446744073709551615", &why, &id), -ENOENT);
	cgroups_free(c);
	buf_done(&why);
}

#define INNER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

Test(cgroup, A23_every_line_of_a_process_is_searched_and_the_innermost_container_wins)
{
	static const struct {
		const char *text, *path, *id; /* NULL: none */
	} cases[] = {
		/* Version 2. */
		{"0::/system.slice/docker-" ID ".scope\n", "/system.slice/docker-" ID ".scope", ID},
		{"0::/\n", NULL, NULL},
		{"0::/user.slice\n", "/user.slice", NULL},
		/* Hybrid: only one controller has it, or the other ones have less. */
		{"4:memory:/docker/" ID "\n3:cpuset:/\n1:name=systemd:/\n0::/\n", "/docker/" ID,
			ID},
		{"4:memory:/process_api/42f7efa86439b4f3758e33cef5b30c52\n3:cpuset:/\n0::/\n",
			"/process_api/42f7efa86439b4f3758e33cef5b30c52", NULL},
		{"9:pids:/a/b/c\n1:name=systemd:/system.slice/x.service\n0::/\n",
			"/system.slice/x.service", NULL},
		{"9:pids:/a/b/c\n1:name=systemd:/b\n0::/system.slice/x.service\n",
			"/system.slice/x.service", NULL},
		{"0::/system.slice/docker.service\n9:memory:/docker/" ID "\n", "/docker/" ID, ID},
		/* Nested: Kubernetes in Docker. */
		{"9:memory:/docker/" ID "\n8:pids:/docker/" ID "/kubepods/pod1/" INNER "\n0::/\n",
			"/docker/" ID "/kubepods/pod1/" INNER, INNER},
		{"8:pids:/docker/" ID "/kubepods/pod1/" INNER "\n9:memory:/docker/" ID "\n",
			"/docker/" ID "/kubepods/pod1/" INNER, INNER},
		{"0::/docker/" ID "/init.scope\n", "/docker/" ID "/init.scope", ID},
		/* As a cgroup namespace shows what is outside of it. */
		{"0::/../../docker-" ID ".scope\n", "/../../docker-" ID ".scope", ID},
		/* A name with a colon; no newline at the end. */
		{"2:cpu,cpuacct:/a:b/docker/" ID, "/a:b/docker/" ID, ID},
		{"", NULL, NULL},
		{"garbage\n1:\n::\n:::\n5:x:relative\n", NULL, NULL},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char path[CGROUP_PATH_MAX] = "";
		char id[CGROUP_CONTAINER_MAX + 1] = "";
		bool found = cgroup_of_process(cases[i].text, path);

		cr_assert_eq(found, cases[i].path != NULL, "%s", cases[i].text);
		cr_assert_str_eq(path, found ? cases[i].path : "");
		cr_assert_eq(cgroup_container(path, id), cases[i].id != NULL, "%s", path);
		cr_assert_str_eq(id, cases[i].id ? cases[i].id : "");
	}
}

Test(cgroup, a_controller_of_version_1_is_found_among_those_of_one_mount)
{
	static const char mounts[] =
		"34 25 0:29 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
		"35 25 0:30 / /c/memory rw - cgroup cgroup rw,memory\n"
		"36 25 0:31 / /c/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
		"37 24 0:32 / /c/unified rw - cgroup2 cgroup2 rw,memory\n";
	char mount[CGROUP_PATH_MAX];

	cr_assert(cgroup_find_mount_v1(mounts, "memory", mount));
	cr_assert_str_eq(mount, "/c/memory");
	cr_assert(cgroup_find_mount_v1(mounts, "cpuacct", mount));
	cr_assert_str_eq(mount, "/c/cpu,cpuacct");
	cr_assert(cgroup_find_mount_v1(mounts, "cpu", mount));
	cr_assert_not(cgroup_find_mount_v1(mounts, "pids", mount));
	cr_assert_not(cgroup_find_mount_v1(mounts, "acct", mount));
	cr_assert_not(cgroup_find_mount_v1("", "memory", mount));
}
