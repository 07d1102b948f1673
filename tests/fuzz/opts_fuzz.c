/* links: base */
/*
 * The first byte chooses: an even one makes the rest a config file, an odd one an argv whose words
 * end in NUL. A refusal must come with one line of valid UTF-8; whatever was accepted must lie
 * inside the table's limits.
 */
#include "base/opts.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/def.h"
#include "base/str.h"

#define FUZZ_WORDS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_conf {
	bool verbose;
	uint64_t frequency;
	double ratio;
	const char *output;
	uint64_t duration_ns;
	int mode;
	struct opt_list pids;
	struct opt_list labels;
};

static const struct opt_spec fuzz_specs[] = {
	{"verbose", 'v', OPT_FLAG, offsetof(struct fuzz_conf, verbose)},
	{"frequency", 'F', OPT_U64, offsetof(struct fuzz_conf, frequency), .arg = "HZ", .def = "99",
		.min = 1, .max = 10000},
	{"ratio", 'r', OPT_F64, offsetof(struct fuzz_conf, ratio), .min = -1, .max = 1},
	{"output", 'o', OPT_STR, offsetof(struct fuzz_conf, output), .def = "out.svg"},
	{"duration", 'd', OPT_DURATION, offsetof(struct fuzz_conf, duration_ns), .def = "10s",
		.min = 1e6, .max = 86400e9},
	{"mode", 'm', OPT_ENUM, offsetof(struct fuzz_conf, mode), .choices = "exact|fast|host",
		.def = "fast"},
	{"pid", 'p', OPT_U64_LIST, offsetof(struct fuzz_conf, pids), .min = 1, .max = 4194304},
	{"label", 'l', OPT_STR_LIST, offsetof(struct fuzz_conf, labels)},
	{0},
};

static void fuzz_check(bool holds)
{
	if (!holds)
		abort();
}

static void fuzz_check_conf(const struct fuzz_conf *conf)
{
	fuzz_check(conf->frequency >= 1 && conf->frequency <= 10000);
	fuzz_check(conf->ratio >= -1 && conf->ratio <= 1);
	fuzz_check(conf->output != NULL);
	fuzz_check(conf->duration_ns >= 1000000 && conf->duration_ns <= 86400 * NSEC_PER_SEC);
	fuzz_check(conf->mode >= 0 && conf->mode <= 2);
	fuzz_check(conf->pids.count <= OPT_LIST_MAX && conf->labels.count <= OPT_LIST_MAX);
	for (size_t i = 0; i < conf->pids.count; i++)
		fuzz_check(conf->pids.u64[i] >= 1 && conf->pids.u64[i] <= 4194304);
	for (size_t i = 0; i < conf->labels.count; i++)
		fuzz_check(strlen(conf->labels.str[i]) < SIZE_MAX);
}

static int fuzz_file(struct opts *o, const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = memfd_create("opts", MFD_CLOEXEC);
	char path[64];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return opts_parse_file(o, path);
}

static int fuzz_argv(struct opts *o, char *words, size_t size)
{
	char name[] = "fuzz";
	char *argv[FUZZ_WORDS_MAX + 2] = {name};
	int argc = 1, operands = -1, r;

	for (size_t i = 0; i < size && argc <= FUZZ_WORDS_MAX; i += strlen(words + i) + 1)
		argv[argc++] = words + i;
	r = opts_parse_argv(o, argc, argv, &operands);
	if (r == 0)
		fuzz_check(operands >= 1 && operands <= argc);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_conf conf; /* 16 KiB of lists */
	_cleanup_(opts_done) struct opts o;
	char *words;
	int r;

	if (opts_init(&o, fuzz_specs, &conf) < 0)
		abort();
	if (size == 0)
		return 0;
	words = calloc(size, 1); /* the last byte ends the last word */
	if (!words)
		abort();
	memcpy(words, data + 1, size - 1);
	r = data[0] % 2 ? fuzz_argv(&o, words, size - 1) : fuzz_file(&o, data + 1, size - 1);
	if (r == -EINVAL) {
		fuzz_check(o.message.size > 0 && !strchr(o.message.data, '\n'));
		fuzz_check(str_is_utf8(o.message.data, o.message.size));
	}
	fuzz_check_conf(&conf);
	free(words);
	return 0;
}
