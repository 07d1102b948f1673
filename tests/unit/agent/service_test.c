/* Which service a process is counted to: the order of the sources, and what rules mean. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/processes.h"
#include "agent/service.h"
#include "base/def.h"

static char name[SERVICE_NAME_MAX];

static const char *name_of(struct service_facts f)
{
	f.fixed = f.fixed ? f.fixed : "";
	f.comm = f.comm ? f.comm : "";
	f.exe = f.exe ? f.exe : "";
	f.cgroup = f.cgroup ? f.cgroup : "";
	f.workload = f.workload ? f.workload : "";
	(void)service_name(&f, name);
	return name;
}

static struct service_rule rule(const char *text)
{
	struct buf why = BUF_INIT(1024);
	struct service_rule r;

	cr_assert_eq(service_rule_parse(text, &why, &r), 0, "%s", buf_str(&why));
	buf_done(&why);
	return r;
}

Test(service, the_first_source_that_applies_names_it)
{
	struct service_rule web = rule("comm:nginx*=web");
	struct service_facts f = {.fixed = "all",
		.rules = &web,
		.rule_count = 1,
		.comm = "nginx: worker",
		.exe = "nginx",
		.cgroup = "/system.slice/front.service",
		.workload = "shop"};

	cr_assert_str_eq(name_of(f), "all");
	f.fixed = "";
	cr_assert_str_eq(name_of(f), "web");
	f.rule_count = 0;
	cr_assert_str_eq(name_of(f), "shop");
	f.workload = "";
	cr_assert_str_eq(name_of(f), "front");
	f.cgroup = "/user.slice/user-0.slice/session-4.scope";
	cr_assert_str_eq(name_of(f), "nginx");
	f.exe = "";
	cr_assert_str_eq(name_of(f), "nginx: worker");
	f.comm = "";
	cr_assert_str_eq(name_of(f), "unknown");
	f.is_kernel = true;
	cr_assert_str_eq(name_of(f), "kernel");
}

Test(service, a_unit_is_called_without_suffix_instance_and_escapes)
{
	cr_assert_str_eq(name_of((struct service_facts){.cgroup = "/a/pg@14-main.service"}), "pg");
	cr_assert_str_eq(name_of((struct service_facts){.cgroup = "/a/dbus\\x2dbroker.service"}),
		"dbus-broker");
	cr_assert_str_eq(name_of((struct service_facts){.cgroup = "/a/x\\x0ay\\x2.service"}),
		"x\\x0ay\\x2", "only what is printable is decoded");
}

Test(service, rules_compare_name_unit_or_cgroup_and_the_first_wins)
{
	struct service_rule rules[3] = {
		rule("unit:pg@*.service=db"), rule("cgroup:/batch*=batch"), rule("comm:a=b=c")};
	struct service_facts f = {.rules = rules, .rule_count = 3};

	f.cgroup = "/batch/pg@1.service";
	cr_assert_str_eq(name_of(f), "db");
	f.cgroup = "/batch/x/y.service";
	cr_assert_str_eq(name_of(f), "batch", "* crosses slashes");
	f.cgroup = "/";
	f.comm = "a=b";
	cr_assert_str_eq(name_of(f), "c", "the last = ends the pattern");
	f.comm = "pg@1.service";
	f.exe = "z";
	cr_assert_str_eq(name_of(f), "z", "a unit rule does not look at names");
}

Test(service, a_rule_that_means_nothing_is_refused)
{
	static const char *const wrong[] = {"", "x", "nginx=web", "comm:=web", "comm:nginx",
		"comm:nginx=", "exe:a=b", "comm:a"};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct buf why = BUF_INIT(1024);
		struct service_rule r;

		cr_assert_eq(service_rule_parse(wrong[i], &why, &r), -EINVAL, "%s", wrong[i]);
		cr_assert(why.size > 0);
		buf_done(&why);
	}
}

enum { WINDOW_NS = 1000000000, START_NS = 5000 };

static void see(struct processes *p, struct collect_stack *s, uint32_t tgid, uint64_t start_ns,
	const char *comm, uint64_t weight_ns)
{
	struct stack_record r = {.key = {.tgid = tgid, .start_ns = start_ns}};

	(void)snprintf(r.process_comm, sizeof(r.process_comm), "%s", comm);
	processes_see(p, &r);
	*s = (struct collect_stack){.key = r.key, .value = {.samples = 1, .weight_ns = weight_ns}};
}

static void service_is(struct processes *p, const struct collect_stack *s, const char *service)
{
	struct process found;
	const char *text = "";

	cr_assert(processes_find(p, &s->key, &found));
	for (size_t i = 0; i < found.label_count; i++)
		if (strcmp(found.labels[i].key, "service") == 0)
			text = found.labels[i].text;
	cr_assert_str_eq(text, service);
}

/* A shell that forked is sampled, then becomes the program: the sample is the shell's. */
Test(processes, an_executable_counts_only_while_the_process_has_the_name_it_was_sampled_under)
{
	struct processes_options o = {.max = 8, .service = ""};
	struct collect_stack now, before;
	struct processes *p;
	char comm[17] = "", exe[4096] = "";
	FILE *f = fopen("/proc/self/comm", "re");

	cr_assert_not_null(f);
	cr_assert_eq(fscanf(f, "%16[^\n]", comm), 1);
	(void)fclose(f);
	cr_assert_gt(readlink("/proc/self/exe", exe, sizeof(exe) - 1), 0);
	cr_assert_eq(processes_new(&o, &p), 0);
	see(p, &now, (uint32_t)getpid(), 1, comm, 1);
	see(p, &before, (uint32_t)getpid(), 2, "a-shell", 1);
	processes_settle(p);
	service_is(p, &now, strrchr(exe, '/') + 1);
	service_is(p, &before, "a-shell");
	processes_free(p);
}

/* A process whose executable is a memfd, when it has become that. */
static pid_t start_memfd(void)
{
	int exec_done[2];
	char path[32], byte;

	cr_assert_eq(pipe2(exec_done, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int from = open("/bin/sleep", O_RDONLY | O_CLOEXEC);
		int to = memfd_create("payload", MFD_CLOEXEC);

		while (sendfile(to, from, NULL, 1 << 20) > 0)
			;
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
		execl(path, "sleep", "60", (char *)NULL);
		_exit(1);
	}
	cr_assert_gt(pid, 0);
	(void)close(exec_done[1]);
	cr_assert_eq(read(exec_done[0], &byte, 1), 0);
	(void)close(exec_done[0]);
	return pid;
}

Test(processes, a15_an_executable_without_a_file_is_known_by_the_processs_name, .timeout = 30)
{
	struct processes_options o = {.max = 8, .service = ""};
	pid_t pid = start_memfd();
	char comm[17] = "", path[32];
	struct collect_stack s;
	struct processes *p;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	FILE *f = fopen(path, "re");
	cr_assert_not_null(f);
	cr_assert_eq(fscanf(f, "%16[^\n]", comm), 1);
	(void)fclose(f);
	cr_assert_eq(processes_new(&o, &p), 0);
	see(p, &s, (uint32_t)pid, 1, comm, 1);
	processes_settle(p);
	service_is(p, &s, comm);
	processes_free(p);
	(void)kill(pid, SIGKILL);
	cr_expect_eq(waitpid(pid, NULL, 0), pid);
}

Test(processes, only_small_services_of_newborn_processes_are_pooled)
{
	struct processes *p;
	struct collect_stack s[4];
	const uint32_t gone = 0x7fffff00; /* above every pid: there is no /proc entry to read */

	cr_assert_eq(processes_new(&(struct processes_options){.service = "", .max = 16}, &p), 0);
	see(p, &s[0], gone, START_NS + 1, "sed", WINDOW_NS / 200);
	see(p, &s[1], gone + 1, START_NS + 1, "cc1", WINDOW_NS / 50);
	see(p, &s[2], gone + 2, START_NS - 1, "old", 1);
	see(p, &s[3], gone + 3, START_NS + 1, "old", 1);
	processes_settle(p);
	service_is(p, &s[0], "sed");
	processes_pool(p, s, 4, START_NS, WINDOW_NS);
	service_is(p, &s[0], "other");
	service_is(p, &s[1], "cc1");
	service_is(p, &s[2], "old");
	service_is(p, &s[3], "old");
	processes_free(p);
}

Test(processes, several_tools_together_may_be_a_service_of_their_own)
{
	struct processes *p;
	struct collect_stack s[2];

	cr_assert_eq(processes_new(&(struct processes_options){.service = "", .max = 16}, &p), 0);
	see(p, &s[0], 0x7fffff00, START_NS + 1, "cc1", WINDOW_NS / 150);
	see(p, &s[1], 0x7fffff01, START_NS + 1, "cc1", WINDOW_NS / 150);
	processes_settle(p);
	processes_pool(p, s, 2, START_NS, WINDOW_NS);
	service_is(p, &s[0], "cc1");
	processes_free(p);
}

Test(processes, what_was_named_on_purpose_is_never_pooled)
{
	struct processes *p;
	struct collect_stack s;

	cr_assert_eq(
		processes_new(&(struct processes_options){.service = "all", .max = 16}, &p), 0);
	see(p, &s, 0x7fffff00, START_NS + 1, "sed", 1);
	processes_settle(p);
	processes_pool(p, &s, 1, START_NS, WINDOW_NS);
	service_is(p, &s, "all");
	processes_free(p);
}

Test(processes, above_the_limit_a_process_is_not_known)
{
	struct processes *p;
	struct collect_stack s[2];
	struct process found;

	cr_assert_eq(processes_new(&(struct processes_options){.service = "", .max = 1}, &p), 0);
	see(p, &s[0], 0x7fffff00, 1, "a", 1);
	see(p, &s[1], 0x7fffff01, 1, "b", 1);
	processes_settle(p);
	service_is(p, &s[0], "a");
	cr_assert_not(processes_find(p, &s[1].key, &found));
	processes_free(p);
}
