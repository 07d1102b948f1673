/* See daemon_conf.h. What cannot work is refused at the start, with the place where it is written. */
#include "agent/daemon_conf.h"

#include <ctype.h>
#include <errno.h>

#include "agent/containers.h"
#include "agent/debug_files.h"
#include "agent/debuginfod.h"
#include "agent/events.h"
#include "agent/record.h"
#include "agent/service.h"
#include "base/def.h"
#include "base/file.h"
#include "base/str.h"

#define AT(field) offsetof(struct daemon_conf, field)

const struct opt_spec daemon_conf_specs[] = {
	{"config", 'c', OPT_STR, AT(config), .arg = "FILE", .def = "",
		.help = "read options from FILE, as key = value lines", .argv_only = true},
	{"backend", 0, OPT_STR, AT(backend), .arg = "URL", .def = "http://127.0.0.1:4040",
		.help = "where flame-backend listens; http:// is for loopback only"},
	{"token-file", 0, OPT_STR, AT(token_file), .arg = "FILE",
		.help = "holds the token that the backend knows us by"},
	{"ca-file", 0, OPT_STR, AT(ca_file), .arg = "FILE",
		.help = "trust these certificate authorities (PEM) instead of the system's"},
	{"cert-file", 0, OPT_STR, AT(cert_file), .arg = "FILE",
		.help = "client certificate (PEM) to show to the backend"},
	{"key-file", 0, OPT_STR, AT(key_file), .arg = "FILE",
		.help = "its private key, when it is not in cert-file"},
	{"host", 0, OPT_STR, AT(host), .arg = "NAME",
		.help = "this host's name in profiles; empty: the system's host name"},
	{"service", 0, OPT_STR, AT(service), .arg = "NAME",
		.help = "one service for all processes; empty: by service-rule, Kubernetes "
			"workload\nor Compose service, systemd unit, executable"},
	{"service-rule", 0, OPT_STR_LIST, AT(service_rules), .arg = "RULE",
		.help = "comm:PATTERN=NAME, unit:PATTERN=NAME or cgroup:PATTERN=NAME; the first\n"
			"that matches names the service (shell patterns)"},
	{"state-dir", 0, OPT_STR, AT(state_dir), .arg = "DIR", .def = "/var/lib/flame-agent",
		.help = "identity, commands done and windows not yet sent"},
	{"heartbeat", 0, OPT_DURATION, AT(heartbeat_ns), .arg = "TIME", .def = "30s", .min = 1e8,
		.max = 3600e9,
		.help = "how often to ask the backend, +-10 %; left at 30s, the backend may "
			"choose"},
	{"spool-mb", 0, OPT_U64, AT(spool_mb), .arg = "MB", .def = "256", .min = 1, .max = 1048576,
		.help = "windows that wait for the backend: at most so much; the oldest go first"},
	{"spool-windows", 0, OPT_U64, AT(spool_windows), .arg = "N", .def = "1440", .min = 1,
		.max = 100000, .help = "and at most so many"},
	{"frequency", 0, OPT_U64, AT(frequency_hz), .arg = "HZ", .def = "99", .min = 1,
		.max = EVENTS_FREQUENCY_MAX_HZ,
		.help = "samples a second on each CPU, unless a command says otherwise"},
	{"continuous", 0, OPT_FLAG, AT(continuous), .def = "off",
		.help = "record always, not only when told to"},
	{"window", 0, OPT_DURATION, AT(window_ns), .arg = "TIME", .def = "10s", .min = 1e9,
		.max = 3600e9, .help = "length of one profile on request"},
	{"window-continuous", 0, OPT_DURATION, AT(window_continuous_ns), .arg = "TIME",
		.def = "60s", .min = 1e9, .max = 3600e9,
		.help = "length of one profile of a continuous recording, aligned to UTC"},
	{"cpu-limit", 0, OPT_F64, AT(cpu_limit_percent), .arg = "PERCENT", .def = "1", .min = 0.01,
		.max = 100,
		.help = "of the machine that a continuous recording may use; above it the\n"
			"frequency is halved"},
	{"memory-limit-mb", 0, OPT_U64, AT(memory_limit_mb), .arg = "MB", .def = "100", .min = 16,
		.max = 65536, .help = "a recording that takes more is ended"},
	{"unwind", 0, OPT_ENUM, AT(unwind), .arg = "HOW", .def = "cfi", .choices = "cfi|fp",
		.help = "how callers are found: by unwind tables (.eh_frame), or by frame pointers "
			"only"},
	{"unwind-table-mb", 0, OPT_U64, AT(unwind_table_mb), .arg = "MB", .def = "24",
		.min = TABLES_BUDGET_MB_MIN, .max = RECORD_UNWIND_TABLE_MB_MAX,
		.help = "kernel memory for unwind tables, of each recording"},
	{"lines", 0, OPT_ENUM, AT(lines), .arg = "WHICH", .def = "function",
		.choices = "function|line",
		.help = "the line a frame has: its function's first, so that there are fewer "
			"stacks,\n"
			"or the one that ran"},
	{"container-runtime", 0, OPT_STR, AT(container_runtime), .arg = "HOW", .def = "auto",
		.help = "who names containers: auto (containerd, CRI-O, Docker, Podman), off, or "
			"the\npath of a socket"},
	{"debug-dir", 0, OPT_STR_LIST, AT(debug_dirs), .arg = "DIR",
		.help = "where separate debug files are, in place of /usr/lib/debug"},
	{"debuginfod-url", 0, OPT_STR_LIST, AT(debuginfod_urls), .arg = "URL",
		.help = "fetch missing debug files from this server, by build ID, for later\n"
			"windows; without it no server is asked"},
	{"seed", 0, OPT_U64, AT(seed), .arg = "N", .def = "0",
		.help = "of all that is drawn (jitter, sampling periods); 0: another one each "
			"start"},
	{0},
};

/* "FILE:LINE: " of a key (with that value, unless it is "") in the file, "option '--KEY': " for the others; for messages. */
static void append_place_of(const struct opts *o, const struct daemon_conf *c, const char *key,
	const char *value, struct buf *why)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 20);
	size_t size = strlen(key);
	size_t line = 1;

	for (size_t i = 0; o->specs[i].name; i++)
		if (strcmp(o->specs[i].name, key) == 0 && (o->seen & (UINT64_C(1) << i)))
			goto option;
	if (!*c->config || file_read(c->config, &text) < 0)
		goto option;
	for (const char *p = buf_str(&text); *p; line++) {
		p += strspn(p, " \t");
		if (strncmp(p, key, size) == 0 && (p[size] == '=' || isblank(p[size])) &&
			memmem(p, strcspn(p, "\n"), value, strlen(value))) {
			(void)buf_printf(why, "%s:%zu: %s: ", c->config, line, key);
			return;
		}
		p += strcspn(p, "\n");
		p += *p == '\n';
	}
option:
	(void)buf_printf(why, "option '--%s': ", key);
}

static void append_place(
	const struct opts *o, const struct daemon_conf *c, const char *key, struct buf *why)
{
	append_place_of(o, c, key, "", why);
}

static int check_file(const struct opts *o, const struct daemon_conf *c, const char *key,
	const char *path, struct buf *why)
{
	if (!*path || access(path, R_OK) == 0)
		return 0;
	append_place(o, c, key, why);
	(void)buf_printf(why, "'%s': %s", path, strerrordesc_np(errno));
	return -EINVAL;
}

static int read_token(const struct opts *o, struct daemon_conf *c, struct buf *why)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(sizeof(c->token) - 1);
	size_t size;
	int r;

	if (!*c->token_file)
		return 0;
	r = file_read(c->token_file, &b);
	size = strcspn(buf_str(&b), "\r\n");
	for (size_t i = 0; r == 0 && i < size; i++)
		if (!isgraph((unsigned char)b.data[i]))
			r = -EINVAL;
	if (r == 0 && size > 0 && strspn(b.data + size, "\r\n") == b.size - size) {
		memcpy(c->token, b.data, size);
		c->token[size] = '\0';
		return 0;
	}
	append_place(o, c, "token-file", why);
	if (r == 0 || r == -EINVAL)
		(void)buf_printf(why, "'%s' must hold one line, the token", c->token_file);
	else
		(void)buf_printf(why, "'%s': %s", c->token_file, strerrordesc_np(-r));
	return -EINVAL;
}

static bool is_loopback(const char *authority)
{
	static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i]);

		if (strncasecmp(authority, names[i], n) == 0 &&
			(authority[n] == '\0' || authority[n] == ':'))
			return true;
	}
	return false;
}

static int check_url(const struct opts *o, const struct daemon_conf *c, struct buf *why)
{
	bool is_https = str_has_prefix(c->backend, "https://");
	const char *authority = strstr(c->backend, "://");

	authority = authority ? authority + 3 : "";
	if ((!is_https && !str_has_prefix(c->backend, "http://")) || !*authority ||
		authority[strcspn(authority, "/?#@ \t")] != '\0') {
		append_place(o, c, "backend", why);
		(void)buf_printf(why, "'%s' is not http[s]://HOST[:PORT]", c->backend);
		return -EINVAL;
	}
	if (!is_https && !is_loopback(authority)) {
		append_place(o, c, "backend", why);
		(void)buf_printf(why,
			"'%s' would send profiles unencrypted: use https:// (http:// is for "
			"127.0.0.1, [::1] and localhost)",
			c->backend);
		return -EINVAL;
	}
	return 0;
}

static int check_names(const struct opts *o, struct daemon_conf *c, struct buf *why)
{
	const char *key = strlen(c->service) > 255 ? "service" : "host";

	if (strlen(c->service) > 255 || strlen(c->host) >= sizeof(c->host_name)) {
		append_place(o, c, key, why);
		(void)buf_append_str(why, "longer than 255 bytes");
		return -EINVAL;
	}
	(void)snprintf(c->host_name, sizeof(c->host_name), "%s", c->host);
	if (!*c->host_name && gethostname(c->host_name, sizeof(c->host_name) - 1) < 0)
		(void)snprintf(c->host_name, sizeof(c->host_name), "unknown");
	if (c->state_dir[0] != '/') {
		append_place(o, c, "state-dir", why);
		(void)buf_printf(why, "'%s' must be an absolute path", c->state_dir);
		return -EINVAL;
	}
	return 0;
}

static int check_rules(const struct opts *o, const struct daemon_conf *c, struct buf *why)
{
	_cleanup_(buf_done) struct buf problem = BUF_INIT(1024);
	const char *text = "";

	if (c->service_rules.count > SERVICE_RULES_MAX)
		(void)buf_printf(&problem, "more than %d rules", SERVICE_RULES_MAX);
	for (size_t i = 0; problem.size == 0 && i < c->service_rules.count; i++) {
		struct service_rule rule;

		text = c->service_rules.str[i];
		(void)service_rule_parse(text, &problem, &rule);
	}
	if (problem.size == 0)
		return 0;
	append_place_of(o, c, "service-rule", text, why);
	(void)buf_append_str(why, buf_str(&problem));
	return -EINVAL;
}

static int check_runtime(const struct opts *o, const struct daemon_conf *c, struct buf *why)
{
	_cleanup_(buf_done) struct buf problem = BUF_INIT(1024);

	if (containers_runtime_is_good(c->container_runtime, &problem))
		return 0;
	append_place(o, c, "container-runtime", why);
	(void)buf_append_str(why, buf_str(&problem));
	return -EINVAL;
}

static int check_debug_dirs(const struct opts *o, const struct daemon_conf *c, struct buf *why)
{
	const char *complaint = debug_files_complaint(c->debug_dirs.str, c->debug_dirs.count);

	if (!complaint)
		return 0;
	append_place_of(o, c, "debug-dir", c->debug_dirs.str[0], why);
	(void)buf_append_str(why, complaint);
	return -EINVAL;
}

static int check_debuginfod(const struct opts *o, const struct daemon_conf *c, struct buf *why)
{
	const char *url;
	const char *complaint =
		debuginfod_complaint(c->debuginfod_urls.str, c->debuginfod_urls.count, &url);

	if (!complaint)
		return 0;
	append_place_of(o, c, "debuginfod-url", url, why);
	(void)buf_append_str(why, complaint);
	return -EINVAL;
}

static int check(const struct opts *o, struct daemon_conf *c, struct buf *why)
{
	int r = check_url(o, c, why);

	if (r == 0)
		r = check_debug_dirs(o, c, why);
	if (r == 0)
		r = check_debuginfod(o, c, why);
	if (r == 0)
		r = check_names(o, c, why);
	if (r == 0)
		r = check_rules(o, c, why);
	if (r == 0)
		r = check_runtime(o, c, why);
	if (r == 0)
		r = check_file(o, c, "ca-file", c->ca_file, why);
	if (r == 0)
		r = check_file(o, c, "cert-file", c->cert_file, why);
	if (r == 0)
		r = check_file(o, c, "key-file", c->key_file, why);
	return r == 0 ? read_token(o, c, why) : r;
}

/* What a table without default leaves NULL. */
static void fill_empty(struct daemon_conf *c)
{
	const char **texts[] = {&c->config, &c->backend, &c->token_file, &c->ca_file, &c->cert_file,
		&c->key_file, &c->host, &c->service, &c->state_dir, &c->container_runtime};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!*texts[i])
			*texts[i] = "";
}

int daemon_conf_load(int argc, char **argv, struct opts *o, struct daemon_conf *c, struct buf *why)
{
	int operands = argc;
	int r = opts_init(o, daemon_conf_specs, c);

	if (r == 0)
		r = opts_parse_argv(o, argc, argv, &operands);
	if (r == 1)
		return 1;
	if (r == 0 && operands < argc) {
		(void)buf_printf(why, "daemon takes no operand '%s'", argv[operands]);
		return -EINVAL;
	}
	if (r == 0 && c->config && *c->config)
		r = opts_parse_file(o, c->config);
	if (r < 0) {
		(void)buf_append_str(why, buf_str(&o->message));
		return r == -ENOMEM ? r : -EINVAL;
	}
	fill_empty(c);
	return check(o, c, why);
}
