/*
 * Writes a job as text; the format stands in job.h, its reader is lab/guest/job_read.c. Nothing is
 * quoted, so what a line cannot carry is refused here.
 */
#include "lab/job.h"

#include <errno.h>

#include "base/def.h"

static bool is_step_name(const char *s)
{
	size_t size = strlen(s);

	if (size == 0 || size > 80 || s[0] == '.')
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == size;
}

/* A program's name below its directory: no slash, no leading dot. */
static bool is_program_name(const char *s)
{
	return *s && *s != '.' && !strpbrk(s, "/\n");
}

static int write_word(struct buf *out, const char *word, const char *value)
{
	if (strchr(value, '\n'))
		return -EINVAL;
	return buf_printf(out, "%s %s\n", word, value);
}

static int write_words(struct buf *out, const char *word, const char *const *values)
{
	int err = 0;

	/* The reader needs the last slot for its NULL. */
	for (size_t i = 0; err == 0 && i < JOB_ARGS_MAX && values[i]; i++)
		err = i == JOB_ARGS_MAX - 1 ? -EINVAL : write_word(out, word, values[i]);
	return err;
}

static int write_play(const struct job_step *s, struct buf *out)
{
	int err;

	if (!s->backend || !is_program_name(s->backend) || !s->agent)
		return -EINVAL;
	if ((err = write_word(out, "play", s->play)) < 0 ||
		(err = write_word(out, "backend", s->backend)) < 0 ||
		(err = write_words(out, "backend_env", s->backend_env)) < 0)
		return err;
	return buf_printf(out, "frequency_hz %llu\njitter_seed %llu\nplay_count %llu\n",
		(unsigned long long)s->frequency_hz, (unsigned long long)s->jitter_seed,
		(unsigned long long)s->play_count);
}

static int write_step(const struct job_step *s, struct buf *out)
{
	int err;

	if (!s->name || !is_step_name(s->name) || !s->workload || !is_program_name(s->workload) ||
		(s->agent && !is_program_name(s->agent)))
		return -EINVAL;
	if ((err = write_word(out, "step", s->name)) < 0 ||
		(s->agent && (err = write_word(out, "agent", s->agent)) < 0) ||
		(err = write_words(out, "agent_arg", s->agent_args)) < 0 ||
		(err = write_words(out, "agent_env", s->agent_env)) < 0 ||
		(err = write_word(out, "workload", s->workload)) < 0 ||
		(err = write_words(out, "workload_arg", s->workload_args)) < 0)
		return err;
	if (s->play && (err = write_play(s, out)) < 0)
		return err;
	if (s->bpf_stats_after_ms > 0 && (err = buf_printf(out, "bpf_stats_after_ms %llu\n",
						  (unsigned long long)s->bpf_stats_after_ms)) < 0)
		return err;
	return buf_printf(out,
		"workload_env_pad %llu\nstart_offset_ns %llu\nmemory_max %llu\nbpf_stats %d\n"
		"%s%stimeout_ms %llu\nend\n",
		(unsigned long long)s->workload_env_pad, (unsigned long long)s->start_offset_ns,
		(unsigned long long)s->memory_max, s->bpf_stats ? 1 : 0,
		s->verify ? "verify 1\n" : "", s->memory_series ? "memory_series 1\n" : "",
		(unsigned long long)(s->timeout_ms ? s->timeout_ms : 60000));
}

static int check_unique(const struct job *j)
{
	for (size_t i = 0; i < j->step_count; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(j->steps[i].name, j->steps[k].name) == 0)
				return -EINVAL;
	return 0;
}

int job_write(const struct job *j, struct buf *out)
{
	int err = j->step_count > JOB_STEPS_MAX ? -EINVAL : buf_append_str(out, "flamelab-job 1\n");

	for (size_t i = 0; err == 0 && i < j->step_count; i++)
		err = write_step(&j->steps[i], out);
	return err < 0 ? err : check_unique(j);
}
