/*
 * The job reader of PID 1. A line is a directive and the rest of the line; nothing is quoted,
 * because arguments with newlines are refused by the writer.
 */
#include "lab/guest/job_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_word(const char **list, const char *value)
{
	size_t i = 0;

	while (list[i])
		i++;
	if (i + 1 >= JOB_ARGS_MAX) /* the last one stays NULL */
		return -EINVAL;
	list[i] = value;
	return 0;
}

static int read_u64(const char *s, uint64_t *ret)
{
	char *end;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(s, &end, 10);
	return errno || *end ? -EINVAL : 0;
}

static int read_directive(struct job_step *s, const char *word, const char *value)
{
	uint64_t n;

	if (strcmp(word, "agent_arg") == 0)
		return add_word(s->agent_args, value);
	if (strcmp(word, "agent_env") == 0)
		return add_word(s->agent_env, value);
	if (strcmp(word, "workload_arg") == 0)
		return add_word(s->workload_args, value);
	if (strcmp(word, "agent") == 0) {
		s->agent = value;
		return 0;
	}
	if (strcmp(word, "backend_env") == 0)
		return add_word(s->backend_env, value);
	if (strcmp(word, "backend") == 0) {
		s->backend = value;
		return 0;
	}
	if (strcmp(word, "play") == 0) {
		s->play = value;
		return 0;
	}
	if (strcmp(word, "workload") == 0) {
		s->workload = value;
		return 0;
	}
	if (read_u64(value, &n) < 0)
		return -EINVAL;
	if (strcmp(word, "workload_env_pad") == 0)
		s->workload_env_pad = n;
	else if (strcmp(word, "start_offset_ns") == 0)
		s->start_offset_ns = n;
	else if (strcmp(word, "memory_max") == 0)
		s->memory_max = n;
	else if (strcmp(word, "timeout_ms") == 0)
		s->timeout_ms = n;
	else if (strcmp(word, "frequency_hz") == 0)
		s->frequency_hz = n;
	else if (strcmp(word, "jitter_seed") == 0)
		s->jitter_seed = n;
	else if (strcmp(word, "play_count") == 0)
		s->play_count = n;
	else if (strcmp(word, "bpf_stats") == 0)
		s->bpf_stats = n != 0;
	else if (strcmp(word, "bpf_stats_after_ms") == 0)
		s->bpf_stats_after_ms = n;
	else if (strcmp(word, "verify") == 0)
		s->verify = n != 0;
	else if (strcmp(word, "memory_series") == 0)
		s->memory_series = n != 0;
	else
		return -EINVAL;
	return 0;
}

/* One line inside the job. *open is the step that has not ended yet. */
static int read_line(struct job *j, struct job_step **open, char *line)
{
	char *value = strchr(line, ' ');

	if (value)
		*value++ = 0;
	else
		value = line + strlen(line);
	if (strcmp(line, "step") == 0) {
		if (*open || j->step_count >= JOB_STEPS_MAX || !*value)
			return -EINVAL;
		*open = &j->steps[j->step_count++];
		(*open)->name = value;
		(*open)->timeout_ms = 60000;
		return 0;
	}
	if (!*open)
		return -EINVAL;
	if (strcmp(line, "end") == 0) {
		if (!(*open)->workload)
			return -EINVAL;
		*open = NULL;
		return 0;
	}
	return read_directive(*open, line, value);
}

int job_read(char *text, struct job *ret, unsigned int *ret_line)
{
	struct job j = {.steps = calloc(JOB_STEPS_MAX, sizeof(struct job_step))};
	struct job_step *open = NULL;
	unsigned int line_number = 0;

	if (!j.steps)
		return -ENOMEM;
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		line_number++;
		*ret_line = line_number;
		if (line_number == 1 ? strcmp(line, "flamelab-job 1") != 0
				     : read_line(&j, &open, line) < 0) {
			free(j.steps);
			return -EINVAL;
		}
	}
	if (line_number == 0 || open) {
		free(j.steps);
		return -EINVAL;
	}
	*ret = j;
	return 0;
}
