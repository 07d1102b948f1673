/* job: what a job looks like as text, and what cannot be written. */
#include "lab/job.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/def.h"

static int write_one(struct job_step s, struct buf *out)
{
	struct job j = {.steps = &s, .step_count = 1};

	return job_write(&j, out);
}

Test(job, is_written_as_its_header_says)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	struct job_step steps[] = {
		{.name = "cpu_split.997.seed3",
			.agent = "flame-agent",
			.agent_args = {"record", "--frequency", "997"},
			.agent_env = {"FLAME_FAULT=swap"},
			.workload = "cpu_split",
			.workload_args = {"--rounds", "2 or so"},
			.workload_env_pad = 1000,
			.start_offset_ns = 1700000,
			.memory_max = 104857600,
			.timeout_ms = 120000,
			.bpf_stats = true,
			.verify = true,
			.memory_series = true,
			.bpf_stats_after_ms = 1500},
		{.name = "b", .workload = "w"},
	};
	struct job j = {.steps = steps, .step_count = 2};

	cr_assert_eq(job_write(&j, &b), 0);
	cr_assert_str_eq(buf_str(&b), "flamelab-job 1\n"
				      "step cpu_split.997.seed3\n"
				      "agent flame-agent\n"
				      "agent_arg record\n"
				      "agent_arg --frequency\n"
				      "agent_arg 997\n"
				      "agent_env FLAME_FAULT=swap\n"
				      "workload cpu_split\n"
				      "workload_arg --rounds\n"
				      "workload_arg 2 or so\n"
				      "bpf_stats_after_ms 1500\n"
				      "workload_env_pad 1000\n"
				      "start_offset_ns 1700000\n"
				      "memory_max 104857600\n"
				      "bpf_stats 1\n"
				      "verify 1\n"
				      "memory_series 1\n"
				      "timeout_ms 120000\n"
				      "end\n"
				      "step b\n"
				      "workload w\n"
				      "workload_env_pad 0\n"
				      "start_offset_ns 0\n"
				      "memory_max 0\n"
				      "bpf_stats 0\n"
				      "timeout_ms 60000\n"
				      "end\n");
}

Test(job, play_is_written_with_its_backend)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	struct job_step s = {.name = "b",
		.agent = "flame-agent",
		.workload = "w",
		.play = "cycles",
		.backend = "flame-backend-faulty",
		.backend_env = {"FLAME_FAULT=ack_early"},
		.frequency_hz = 99,
		.jitter_seed = 11,
		.play_count = 100};

	cr_assert_eq(write_one(s, &b), 0);
	cr_assert_str_eq(buf_str(&b), "flamelab-job 1\n"
				      "step b\n"
				      "agent flame-agent\n"
				      "workload w\n"
				      "play cycles\n"
				      "backend flame-backend-faulty\n"
				      "backend_env FLAME_FAULT=ack_early\n"
				      "frequency_hz 99\n"
				      "jitter_seed 11\n"
				      "play_count 100\n"
				      "workload_env_pad 0\n"
				      "start_offset_ns 0\n"
				      "memory_max 0\n"
				      "bpf_stats 0\n"
				      "timeout_ms 60000\n"
				      "end\n");
	s.backend = NULL;
	cr_assert_eq(write_one(s, &b), -EINVAL);
}

Test(job, without_steps_is_its_first_line)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	struct job j = {0};

	cr_assert_eq(job_write(&j, &b), 0);
	cr_assert_str_eq(buf_str(&b), "flamelab-job 1\n");
}

Test(job, refuses_a_newline_in_any_text)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(65536);

	cr_assert_eq(write_one(
			     (struct job_step){
				     .name = "a", .workload = "w", .workload_args = {"x\nend"}},
			     &b),
		-EINVAL);
	cr_assert_eq(write_one(
			     (struct job_step){
				     .name = "a", .workload = "w", .agent_args = {"ok", "x\n"}},
			     &b),
		-EINVAL);
	cr_assert_eq(
		write_one(
			(struct job_step){.name = "a", .workload = "w", .agent_env = {"A=\n"}}, &b),
		-EINVAL);
	cr_assert_eq(write_one((struct job_step){.name = "a", .workload = "w\nx"}, &b), -EINVAL);
}

Test(job, refuses_names_that_would_leave_their_directory)
{
	static const char *const bad[] = {"", "a/b", "..", ".hidden", "A", "a b", "a\n"};
	_cleanup_(buf_done) struct buf b = BUF_INIT(65536);
	char long_name[82];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_assert_eq(write_one((struct job_step){.name = bad[i], .workload = "w"}, &b),
			-EINVAL, "%s", bad[i]);
	memset(long_name, 'a', 81);
	long_name[81] = 0;
	cr_assert_eq(write_one((struct job_step){.name = long_name, .workload = "w"}, &b), -EINVAL);
	long_name[80] = 0;
	cr_assert_eq(write_one((struct job_step){.name = long_name, .workload = "w"}, &b), 0);
	cr_assert_eq(write_one((struct job_step){.name = "a", .workload = "../sh"}, &b), -EINVAL);
	cr_assert_eq(
		write_one((struct job_step){.name = "a", .workload = "w", .agent = "/bin/sh"}, &b),
		-EINVAL);
}

Test(job, refuses_a_step_without_workload_and_two_of_one_name)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(65536);
	struct job_step steps[] = {{.name = "a", .workload = "w"}, {.name = "a", .workload = "w"}};
	struct job j = {.steps = steps, .step_count = 2};

	cr_assert_eq(write_one((struct job_step){.name = "a"}, &b), -EINVAL);
	cr_assert_eq(job_write(&j, &b), -EINVAL);
}

Test(job, passes_on_that_the_buffer_is_full)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(20);

	cr_assert_eq(write_one((struct job_step){.name = "a", .workload = "w"}, &b), -ENOBUFS);
}
