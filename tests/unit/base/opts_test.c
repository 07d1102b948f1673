/* opts: parsing, precedence, and messages word by word. */
#include "base/opts.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/mman.h>

#include "base/def.h"
#include "base/opts_internal.h"

struct conf {
	bool verbose;
	uint64_t frequency;
	double ratio;
	const char *output;
	uint64_t duration_ns;
	int mode;
	struct opt_list pids;
	struct opt_list labels;
	const char *config;
	bool secret;
};

static const struct opt_spec specs[] = {
	{"verbose", 'v', OPT_FLAG, offsetof(struct conf, verbose), .help = "say more"},
	{"frequency", 'F', OPT_U64, offsetof(struct conf, frequency), .arg = "HZ", .def = "99",
		.min = 1, .max = 10000, .help = "samples a second and CPU"},
	{"ratio", 0, OPT_F64, offsetof(struct conf, ratio), .arg = "R", .def = "0.5", .max = 1,
		.help = "a part"},
	{"output", 'o', OPT_STR, offsetof(struct conf, output), .arg = "FILE",
		.help = "where to;\nthe suffix decides"},
	{"duration", 'd', OPT_DURATION, offsetof(struct conf, duration_ns), .arg = "TIME",
		.def = "10s", .min = 1e6, .max = 86400e9, .help = "how long"},
	{"mode", 0, OPT_ENUM, offsetof(struct conf, mode), .arg = "MODE",
		.choices = "exact|fast|host", .def = "fast", .help = "how"},
	{"pid", 'p', OPT_U64_LIST, offsetof(struct conf, pids), .arg = "PID", .min = 1,
		.max = 4194304, .help = "only this process"},
	{"label", 0, OPT_STR_LIST, offsetof(struct conf, labels), .arg = "K=V", .def = "none",
		.help = "a label"},
	{"config", 'c', OPT_STR, offsetof(struct conf, config), .arg = "FILE", .argv_only = true,
		.help = "a config file"},
	{"secret", 0, OPT_FLAG, offsetof(struct conf, secret), .hidden = true},
	{0},
};

static struct conf conf;
static struct opts o;

static void set_up(void)
{
	memset(&conf, 0xa5, sizeof(conf));
	cr_assert_eq(opts_init(&o, specs, &conf), 0);
}

static void tear_down(void)
{
	opts_done(&o);
}

TestSuite(opts, .init = set_up, .fini = tear_down);

#define ARGV_MAX 32
static char *args[ARGV_MAX];
static int operands;

/* Parses the words of text; "''" stands for the empty word. */
static int argv(const char *text)
{
	static char words[512];
	char *save = NULL;
	int argc = 0;

	(void)snprintf(words, sizeof(words), "prog %s", text);
	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
		args[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
	operands = -1;
	return opts_parse_argv(&o, argc, args, &operands);
}

static int file(const char *text, size_t size)
{
	static char path[64];
	int fd = memfd_create("opts", MFD_CLOEXEC);

	cr_assert_eq(write(fd, text, size), (ssize_t)size);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return opts_parse_file(&o, path);
}

#define FILE_TEXT(text) file(text, sizeof(text) - 1)

/* The message without the file's name, which differs from run to run. */
static const char *file_message(void)
{
	const char *colon = strchr(buf_str(&o.message), ':');

	return colon ? colon + 1 : "";
}

Test(opts, defaults_are_parsed_like_input_and_the_rest_is_zero)
{
	cr_assert_eq(conf.verbose, false);
	cr_assert_eq(conf.frequency, 99);
	cr_assert_eq(conf.ratio, 0.5);
	cr_assert_null(conf.output);
	cr_assert_eq(conf.duration_ns, 10 * NSEC_PER_SEC);
	cr_assert_eq(conf.mode, 1);
	cr_assert_eq(conf.pids.count, 0);
	cr_assert_eq(conf.labels.count, 1);
	cr_assert_str_eq(conf.labels.str[0], "none");
}

Test(opts, all_ways_to_write_an_option)
{
	cr_assert_eq(argv("--frequency=7 --ratio 1e-1 -vo out.svg -d250ms --mode host -p1 -p 2,3 "
			  "--pid=4 --label a,b --label ''"),
		0);
	cr_assert_eq(conf.frequency, 7);
	cr_assert_eq(conf.ratio, 0.1);
	cr_assert(conf.verbose);
	cr_assert_str_eq(conf.output, "out.svg");
	cr_assert_eq(conf.duration_ns, 250 * NSEC_PER_MSEC);
	cr_assert_eq(conf.mode, 2);
	cr_assert_eq(conf.pids.count, 4);
	for (uint64_t i = 0; i < 4; i++)
		cr_assert_eq(conf.pids.u64[i], i + 1);
	cr_assert_eq(conf.labels.count, 2, "replaces the default, is never split");
	cr_assert_str_eq(conf.labels.str[0], "a,b");
	cr_assert_str_eq(conf.labels.str[1], "");
	cr_assert_eq(o.seen & 1, 1);
	cr_assert_eq(o.seen & 1 << 9, 0);
}

Test(opts, the_last_of_two_wins_and_no_switches_off)
{
	cr_assert_eq(argv("-v -F 1 --no-verbose -F 2"), 0);
	cr_assert_not(conf.verbose);
	cr_assert_eq(conf.frequency, 2);
}

Test(opts, operands_come_last_in_their_order_and_two_dashes_end_options)
{
	cr_assert_eq(argv("one -F 5 two - --verbose -- -x --mode"), 0);
	cr_assert_str_eq(args[operands], "one");
	cr_assert_str_eq(args[operands + 1], "two");
	cr_assert_str_eq(args[operands + 2], "-");
	cr_assert_str_eq(args[operands + 3], "-x");
	cr_assert_str_eq(args[operands + 4], "--mode");
	cr_assert_eq(operands, 5);
	cr_assert_eq(argv("-F 5"), 0);
	cr_assert_eq(operands, 3, "argc when there is none");
	cr_assert_eq(argv(""), 0);
	cr_assert_eq(operands, 1);
}

Test(opts, help_is_an_outcome_of_its_own)
{
	cr_assert_eq(argv("one --help --nonsense"), 1);
	cr_assert_eq(argv("-vh"), 1);
	cr_assert_eq(operands, -1);
}

static void refused(const char *words, const char *message)
{
	cr_assert_eq(argv(words), -EINVAL, "%s", words);
	cr_assert_str_eq(buf_str(&o.message), message);
	cr_assert_eq(operands, -1);
}

Test(opts, messages_on_argv_say_what_would_be_right)
{
	refused("--frequency 0", "option '--frequency': '0' is not in 1..10000");
	refused("-F 10001", "option '--frequency': '10001' is not in 1..10000");
	refused("-F 1k", "option '--frequency': '1k' is not a whole number");
	refused("-F ''", "option '--frequency': the value is empty");
	refused("--ratio=1.5", "option '--ratio': '1.5' is not in 0..1");
	refused("--ratio=nan", "option '--ratio': 'nan' is not a number");
	refused("-d 25h", "option '--duration': '25h' is not in 1ms..24h");
	refused("-d soon",
		"option '--duration': 'soon' is not a time such as 10s, 250ms, 5m or 2h");
	refused("--mode hots",
		"option '--mode': 'hots' is not one of exact, fast, host; did you mean 'host'?");
	refused("--mode x", "option '--mode': 'x' is not one of exact, fast, host");
	refused("-o", "option '--output': needs a value (FILE)");
	refused("--verbose=1",
		"option '--verbose': takes no value; to switch it off use '--no-verbose'");
	refused("-p 1,,2", "option '--pid': the value is empty");
	refused("-p 1,0", "option '--pid': '0' is not in 1..4194304");
	refused("--frequncy 5", "unknown option '--frequncy'; did you mean '--frequency'?");
	refused("--durtaion=5", "unknown option '--durtaion'; did you mean '--duration'?");
	refused("--freq 5", "unknown option '--freq'; did you mean '--frequency'?");
	refused("--xyzzy", "unknown option '--xyzzy'; --help lists them");
	refused("--secrte", "unknown option '--secrte'; --help lists them");
	refused("--no-output", "unknown option '--no-output'; --help lists them");
	refused("-vx", "unknown option '-x'; --help lists them");
	refused("--help=1", "unknown option '--help'; --help lists them");
}

Test(opts, hostile_words_are_shown_repaired)
{
	refused("-F \x1b[2J\xd0",
		"option '--frequency': '\xef\xbf\xbd[2J\xef\xbf\xbd' is not a whole number");
	refused("-\xd0", "unknown option '-\xef\xbf\xbd'; --help lists them");
}

Test(opts, a_list_has_its_limit)
{
	static char text[OPT_LIST_MAX * 2 + 10];
	char *words[] = {(char *)"prog", (char *)"-p", text};

	for (size_t i = 0; i < OPT_LIST_MAX; i++)
		memcpy(text + 2 * i, "1,", 3);
	text[OPT_LIST_MAX * 2 - 1] = '\0';
	cr_assert_eq(opts_parse_argv(&o, 3, words, &operands), 0);
	cr_assert_eq(conf.pids.count, OPT_LIST_MAX);
	refused("-p 1", "option '--pid': more than 1024 values");
}

Test(opts, a_file_sets_what_its_lines_say)
{
	cr_assert_eq(FILE_TEXT("# comment\n\n  verbose = yes # why\nfrequency=997\r\n"
			       "output = a#b c.svg\t\nmode = exact\npid = 1, \npid=2\n"),
		-EINVAL);
	cr_assert_str_eq(file_message(), "7: 'pid': the value is empty");
	cr_assert_eq(FILE_TEXT("verbose = yes # why\nfrequency=997\r\noutput = a#b c.svg\t\n"
			       "mode = exact\npid = 1,2\npid=3\nlabel = x\nlabel = y=z"),
		0);
	cr_assert(conf.verbose);
	cr_assert_eq(conf.frequency, 997);
	cr_assert_str_eq(conf.output, "a#b c.svg");
	cr_assert_eq(conf.mode, 0);
	cr_assert_eq(conf.pids.count, 3);
	cr_assert_eq(conf.pids.u64[2], 3);
	cr_assert_eq(conf.labels.count, 2);
	cr_assert_str_eq(conf.labels.str[1], "y=z");
	cr_assert_eq(o.seen, 0);
}

Test(opts, argv_wins_over_a_file_parsed_before_it)
{
	cr_assert_eq(FILE_TEXT("frequency = 1\nmode = exact\npid = 1\nverbose = on\n"), 0);
	cr_assert_eq(argv("-F 2 -p 2 --no-verbose"), 0);
	cr_assert_eq(conf.frequency, 2);
	cr_assert_eq(conf.mode, 0, "the file wins over the default");
	cr_assert_eq(conf.pids.count, 1);
	cr_assert_eq(conf.pids.u64[0], 2);
	cr_assert_not(conf.verbose);
}

Test(opts, argv_wins_over_a_file_parsed_after_it)
{
	cr_assert_eq(argv("-F 2 -p 2 --no-verbose"), 0);
	cr_assert_eq(FILE_TEXT("frequency = 1\nmode = exact\npid = 1\nverbose = on\n"), 0);
	cr_assert_eq(conf.frequency, 2);
	cr_assert_eq(conf.mode, 0);
	cr_assert_eq(conf.pids.count, 1);
	cr_assert_eq(conf.pids.u64[0], 2);
	cr_assert_not(conf.verbose);
	cr_assert_eq(FILE_TEXT("frequency = 0\n"), -EINVAL, "checked though not stored");
}

static void file_refused(const char *text, const char *message)
{
	cr_assert_eq(file(text, strlen(text)), -EINVAL, "%s", text);
	cr_assert_str_eq(file_message(), message);
}

Test(opts, messages_on_files_name_the_line)
{
	file_refused("\n\nfrequncy = 1\n", "3: unknown key 'frequncy'; did you mean 'frequency'?");
	file_refused("frequency = 0", "1: 'frequency': '0' is not in 1..10000");
	file_refused("verbose = maybe", "1: 'verbose': 'maybe' is not on or off");
	file_refused("verbose\n", "1: expected 'key = value'");
	file_refused("= 3\n", "1: expected 'key = value'");
	file_refused("[section]\n", "1: expected 'key = value'");
	file_refused("mode = fast\nmode = fast\n", "2: 'mode': is set twice");
	file_refused("config = x\n", "1: 'config': may be given on the command line only");
	cr_assert_eq(FILE_TEXT("mode = fast\n\0"), -EINVAL);
	cr_assert_str_eq(file_message(), "2: a NUL byte; this is not a text file");
}

Test(opts, a_file_that_cannot_be_read_is_named)
{
	cr_assert_eq(opts_parse_file(&o, "/no/such/file"), -ENOENT);
	cr_assert_str_eq(buf_str(&o.message), "/no/such/file: No such file or directory");
}

Test(opts, every_word_for_on_and_off)
{
	static const char *const on[] = {"on", "yes", "true", "1"};
	static const char *const off[] = {"off", "no", "false", "0"};
	char line[64];

	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(line, sizeof(line), "verbose = %s\n", on[i]);
		cr_assert_eq(file(line, strlen(line)), 0);
		cr_assert(conf.verbose, "%s", on[i]);
		(void)snprintf(line, sizeof(line), "verbose = %s\n", off[i]);
		cr_assert_eq(file(line, strlen(line)), 0);
		cr_assert_not(conf.verbose, "%s", off[i]);
	}
}

Test(opts, help_is_an_aligned_table)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);

	cr_assert_eq(opts_help(specs, &b), 0);
	cr_assert_str_eq(buf_str(&b),
		"  -v, --verbose        say more\n"
		"  -F, --frequency HZ   samples a second and CPU (1..10000; default 99)\n"
		"      --ratio R        a part (0..1; default 0.5)\n"
		"  -o, --output FILE    where to;\n"
		"                       the suffix decides\n"
		"  -d, --duration TIME  how long (1ms..24h; default 10s)\n"
		"      --mode MODE      how (exact|fast|host; default fast)\n"
		"  -p, --pid PID        only this process (1..4194304; may repeat)\n"
		"      --label K=V      a label (default none; may repeat)\n"
		"  -c, --config FILE    a config file\n"
		"  -h, --help           show this\n");
}

Test(opts, sample_config_is_commented_and_its_defaults_parse)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096), live = BUF_INIT(4096);

	cr_assert_eq(opts_sample_config(specs, &b), 0);
	cr_assert_not_null(strstr(buf_str(&b),
		"# samples a second and CPU (1..10000; default 99)\n#frequency = 99\n"));
	cr_assert_not_null(strstr(buf_str(&b), "# where to;\n# the suffix decides\n#output =\n"));
	cr_assert_null(strstr(buf_str(&b), "config"), "argv only");
	cr_assert_null(strstr(buf_str(&b), "secret"), "hidden");
	cr_assert_eq(file(b.data, b.size), 0, "as it stands it sets nothing");
	/* Uncomment all but the list that is empty by default. */
	for (const char *p = b.data; *p; p++) {
		bool is_key = *p == '#' && p[1] != ' ' && strncmp(p, "#pid", 4) != 0;

		if (!is_key)
			(void)buf_append_char(&live, *p);
	}
	conf.frequency = 1;
	cr_assert_eq(file(live.data, live.size), 0, "%s", buf_str(&o.message));
	cr_assert_eq(conf.frequency, 99);
}

Test(opts, distance_counts_edits)
{
	cr_assert_eq(opts_distance("", ""), 0);
	cr_assert_eq(opts_distance("abc", ""), 3);
	cr_assert_eq(opts_distance("", "ab"), 2);
	cr_assert_eq(opts_distance("kitten", "sitting"), 3);
	cr_assert_eq(opts_distance("ab", "ba"), 1, "neighbours swapped");
	cr_assert_eq(opts_distance("same", "same"), 0);
}
