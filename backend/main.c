/*
 * flame-backend: parses, opens the data directory, serves until a signal, closes. Also the commands that
 * look after a data directory: verify, token.
 */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "backend/api.h"
#include "backend/fault.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/opts.h"
#include "base/str.h"
#include "version.h"

enum {
	EXIT_USAGE = 2,
	WHY_MAX = 1024,
	TEXT_MAX = 65536,
	VERIFY_TEXT_MAX = 16 << 20,
	PATH_BYTES = 4096
};

struct conf {
	const char *config, *data, *listen, *tls_cert, *tls_key, *tls_client_ca, *scope, *name,
		*wanted_version;
	uint64_t retention_ns, size_max_bytes, free_min_bytes, commit_interval_ns, idle_timeout_ns,
		heartbeat_interval_ns, connections_max, handlers;
	bool sample_config, version;
};

#define AT(field) offsetof(struct conf, field)
static const struct opt_spec specs[] = {
	{"data", 'd', OPT_STR, AT(data), .arg = "DIR",
		.help = "data directory; made when it is missing"},
	{"listen", 'l', OPT_STR, AT(listen), .arg = "ADDRESS:PORT", .def = "127.0.0.1:4040",
		.help = "where to answer; beyond loopback only with TLS and a token"},
	{"tls-cert", 0, OPT_STR, AT(tls_cert), .arg = "FILE", .help = "certificate chain, PEM"},
	{"tls-key", 0, OPT_STR, AT(tls_key), .arg = "FILE", .help = "its key, PEM"},
	{"tls-client-ca", 0, OPT_STR, AT(tls_client_ca), .arg = "FILE",
		.help = "let in only clients with a certificate of this CA, PEM; agents then "
			"need no token"},
	{"retention", 0, OPT_DURATION, AT(retention_ns), .arg = "TIME", .def = "168h",
		.min = 3600e9, .max = 9e18,
		.help = "profiles older than this are deleted, by the hour"},
	{"size-max", 0, OPT_U64, AT(size_max_bytes), .arg = "BYTES", .def = "50000000000",
		.min = 1e6, .max = 1e18, .help = "above this the oldest profiles are deleted"},
	{"free-min", 0, OPT_U64, AT(free_min_bytes), .arg = "BYTES", .def = "256000000", .min = 1e6,
		.max = 1e18, .help = "with less room on the disk pushes are refused (507)"},
	{"commit-interval", 0, OPT_DURATION, AT(commit_interval_ns), .arg = "TIME", .def = "100ms",
		.min = 1e6, .max = 10e9, .help = "how long pushes are gathered for one commit"},
	{"idle-timeout", 0, OPT_DURATION, AT(idle_timeout_ns), .arg = "TIME", .def = "30s",
		.min = 1e9, .max = 3600e9, .help = "silent connections are closed after it"},
	{"heartbeat-interval", 0, OPT_DURATION, AT(heartbeat_interval_ns), .arg = "TIME",
		.def = "30s", .min = 1e9, .max = 3600e9, .help = "what agents are told"},
	{"wanted-version", 0, OPT_STR, AT(wanted_version), .arg = "VERSION", .def = "",
		.help = "agent version that hosts are told to run; shown where another runs"},
	{"connections-max", 0, OPT_U64, AT(connections_max), .arg = "N", .def = "4096", .min = 16,
		.max = 65536,
		.help = "open connections; near it, idle ones are closed for new ones"},
	{"handlers", 0, OPT_U64, AT(handlers), .arg = "N", .def = "32", .min = 1, .max = 1024,
		.help = "requests that are worked on at once"},
	{"config", 'c', OPT_STR, AT(config), .arg = "FILE", .argv_only = true,
		.help = "lines of OPTION = VALUE; the command line goes before"},
	{"scope", 0, OPT_STR, AT(scope), .arg = "SCOPE", .argv_only = true,
		.help = "token create: ingest, read, control or admin (all three)"},
	{"name", 0, OPT_STR, AT(name), .arg = "NAME", .argv_only = true,
		.help = "token create, token revoke: whose it is"},
	{"sample-config", 0, OPT_FLAG, AT(sample_config), .argv_only = true,
		.help = "print a config file with every option at its default"},
	{"version", 0, OPT_FLAG, AT(version), .argv_only = true, .help = "print the version"},
	{0},
};

/* One line for the person at the terminal. */
_printf_(1, 2) static int say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("flame-backend: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	return EXIT_FAILURE;
}

static int help(void)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(TEXT_MAX);

	(void)opts_help(specs, &text); /* fits */
	(void)printf("Usage: flame-backend --data DIR [OPTION]...\n"
		     "       flame-backend verify DIR\n"
		     "       flame-backend token create --data DIR --scope SCOPE --name NAME\n"
		     "       flame-backend token list|revoke --data DIR [--name NAME]\n\n"
		     "Takes profiles and heartbeats from flame-agent and other senders of push.v1, "
		     "keeps\n"
		     "them in DIR, answers flame graphs. On one machine:\n\n"
		     "  flame-backend --data /var/lib/flame &\n"
		     "  flame-agent daemon --backend http://127.0.0.1:4040 &\n"
		     "  curl -H 'Content-Type: application/json' -d "
		     "'{\"match\":\"{}\",\"duration_s\":10}' \\\n"
		     "       http://127.0.0.1:4040/api/v1/requests\n\n"
		     "and open http://127.0.0.1:4040/. Beyond loopback, with --tls-cert, --tls-key "
		     "and tokens.\n\n"
		     "%s",
		buf_str(&text));
	return EXIT_SUCCESS;
}

static int make_data(const char *dir)
{
	(void)umask(0077); /* profiles and token hashes are nobody else's */
	return file_mkdir_parents(dir);
}

/* `--listen 4040` would be told that it is beyond loopback, which is not what is wrong with it. */
static bool has_port(const char *listen)
{
	const char *colon = strrchr(listen, ':');

	return colon && colon != listen && isdigit((unsigned char)colon[1]);
}

static bool is_loopback(const char *listen)
{
	return str_has_prefix(listen, "127.") || str_has_prefix(listen, "[::1]:") ||
	       str_has_prefix(listen, "localhost:");
}

static int on_signal(struct loop *l, uint32_t events, void *data)
{
	(void)data;
	log_info("main", "stop", "signal=%u", events);
	loop_stop(l);
	return 0;
}

/* Every connection is a descriptor; the usual soft limit of 1,024 is not meant for servers. */
static void raise_descriptor_limit(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = MIN(l.rlim_max, 1 << 20);
	if (setrlimit(RLIMIT_NOFILE, &l) < 0)
		log_warn("main", "raise descriptor limit", -errno, "%s", "");
}

/* The signals are blocked before any thread starts, so that all of them go to the loop. */
static int serve(struct api *a, const struct conf *c)
{
	_cleanup_(loop_freep) struct loop *l = NULL;
	_cleanup_(buf_done) struct buf why = BUF_INIT(WHY_MAX);
	struct loop_source *source;
	struct http_server *server = NULL;
	const struct http_options o = {
		.listen = c->listen,
		.tls_cert = c->tls_cert,
		.tls_key = c->tls_key,
		.tls_client_ca = c->tls_client_ca,
		.idle_timeout_s = (unsigned int)(c->idle_timeout_ns / NSEC_PER_SEC),
		.connections_max = (unsigned int)c->connections_max,
		.handlers = (unsigned int)c->handlers,
		.authorize = api_authorize,
		.app = a,
	};
	int r = loop_new(&l);

	if (!r)
		r = loop_add_signal(l, SIGTERM, on_signal, NULL, &source);
	if (!r)
		r = loop_add_signal(l, SIGINT, on_signal, NULL, &source);
	if (r)
		return say("event loop: %s", strerror(-r));
	r = http_start(&o, api_routes, api_route_count, &why, &server);
	if (r)
		return say("%s", why.size ? buf_str(&why) : strerror(-r));
	a->server = server;
	log_info("main", "listen", "address=%s port=%u tls=%s tokens=%s version=%s", c->listen,
		http_port(server), c->tls_cert ? "yes" : "no",
		a->tokens_required ? "required" : "none, everybody on this host may do everything",
		FLAME_VERSION);
	r = loop_run(l);
	http_stop(server);
	a->server = NULL;
	return r ? say("event loop: %s", strerror(-r)) : EXIT_SUCCESS;
}

/* What the address asks for: beyond loopback nobody is let in without TLS and a token. */
static int check_exposure(struct api *a, const struct conf *c)
{
	if (!has_port(c->listen)) {
		say("--listen '%s' is not ADDRESS:PORT or [ADDRESS]:PORT, such as 127.0.0.1:4040",
			c->listen);
		return -EINVAL;
	}
	a->tokens_required = control_has_tokens(a->control) || !is_loopback(c->listen);
	if (is_loopback(c->listen))
		return 0;
	if (!c->tls_cert || !c->tls_key || !control_has_tokens(a->control)) {
		say("--listen %s is beyond loopback: that needs --tls-cert, --tls-key and a token "
		    "(flame-backend token create --data %s --scope ingest --name NAME)",
			c->listen, c->data);
		return -EPERM;
	}
	return 0;
}

static int run_opened(const struct conf *c, struct store *s)
{
	struct api a = {.store = s, .version = FLAME_VERSION, .started_unix_ns = api_now_unix_ns()};
	int code = EXIT_FAILURE;
	int r = api_init(&a);

	if (!r)
		r = control_open(store_catalog_path(s), &a.control);
	if (r) {
		say("open the catalog of %s: %s", c->data, strerror(-r));
	} else {
		control_set_interval(
			a.control, (unsigned int)(c->heartbeat_interval_ns / NSEC_PER_SEC));
		control_set_wanted_version(a.control, c->wanted_version ? c->wanted_version : "");
		if (check_exposure(&a, c) == 0)
			code = serve(&a, c);
	}
	control_close(a.control);
	api_done(&a);
	return code;
}

static int run(const struct conf *c)
{
	struct store_options o = {
		.retention_ns = c->retention_ns,
		.size_max_bytes = c->size_max_bytes,
		.free_min_bytes = c->free_min_bytes,
		.commit_interval_ms = c->commit_interval_ns / NSEC_PER_MSEC,
	};
	struct store *s = NULL;
	const char *why = NULL;
	const char *fault = "";
	sigset_t ours;
	int code;
	int r = make_data(c->data);

	if (r)
		return say("%s: %s", c->data, strerror(-r));
	if (fault_init(&o, &fault) != 0)
		return say("no such fault: %s", fault);
	if (*fault)
		log_warn("main", "seeded fault", 0, "fault=%s", fault);
	raise_descriptor_limit();
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
	(void)sigemptyset(&ours);
	(void)sigaddset(&ours, SIGTERM);
	(void)sigaddset(&ours, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &ours, NULL);
	r = store_open(c->data, &o, &why, &s);
	if (r)
		return say("open %s: %s", c->data, why ? why : strerror(-r));
	code = run_opened(c, s);
	store_close(s);
	return code;
}

static int verify(const char *dir)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(VERIFY_TEXT_MAX);
	uint64_t profiles = 0;
	int r = store_verify(dir, &out, &profiles);

	(void)fputs(buf_str(&out), stdout);
	if (r < 0)
		return say("verify %s: %s", dir, strerror(-r));
	(void)printf("%s: %llu profiles, %d faults\n", dir, (unsigned long long)profiles, r);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int token(const struct conf *c, const char *action)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(TEXT_MAX);
	char catalog[PATH_BYTES];
	struct control *control = NULL;
	enum http_scope scope = SCOPE_NONE;
	int r = make_data(c->data);

	if (strcmp(action, "create") == 0 && (!c->scope || !control_scope_parse(c->scope, &scope)))
		return say("--scope must be ingest, read, control or admin");
	if (strcmp(action, "list") != 0 && !c->name)
		return say("token %s needs --name", action);
	if (snprintf(catalog, sizeof(catalog), "%s/catalog.db", c->data) >= (int)sizeof(catalog))
		r = -ENAMETOOLONG;
	if (!r)
		r = control_open(catalog, &control);
	if (r)
		return say("%s: %s", c->data, strerror(-r));
	if (strcmp(action, "create") == 0)
		r = control_token_create(control, scope, c->name, &out);
	else if (strcmp(action, "revoke") == 0)
		r = control_token_revoke(control, c->name);
	else
		r = control_token_list(control, &out);
	control_close(control);
	if (r == -EEXIST)
		return say("there is a token '%s' already", c->name);
	if (r == -EINVAL)
		return say("'%s' is no name: use letters, digits and -_.:", c->name);
	if (r)
		return say("token %s: %s", action, strerror(-r));
	(void)printf("%s%s", buf_str(&out), strcmp(action, "create") == 0 ? "\n" : "");
	return EXIT_SUCCESS;
}

static int command(const struct conf *c, int count, char **words)
{
	if (count == 2 && strcmp(words[0], "verify") == 0)
		return verify(words[1]);
	if (count > 0 && strcmp(words[0], "verify") == 0) {
		say("usage: flame-backend verify DIR");
		return EXIT_USAGE;
	}
	if (count > 0 && strcmp(words[0], "token") != 0) {
		say("no command '%s'; to serve: flame-backend --data DIR; see --help", words[0]);
		return EXIT_USAGE;
	}
	if (!c->data) {
		say("--data DIR is needed; see --help");
		return EXIT_USAGE;
	}
	if (count == 0)
		return run(c);
	if (count == 2 && (strcmp(words[1], "create") == 0 || strcmp(words[1], "list") == 0 ||
				  strcmp(words[1], "revoke") == 0))
		return token(c, words[1]);
	say("usage: flame-backend token create|list|revoke --data DIR; see --help");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct conf c = {0};
	struct opts o;
	int first = argc;
	int code = EXIT_USAGE;
	int r = opts_init(&o, specs, &c);

	if (!r)
		r = opts_parse_argv(&o, argc, argv, &first);
	if (r == 0 && c.config)
		r = opts_parse_file(&o, c.config);
	if (r == 1) {
		code = help();
	} else if (r) {
		say("%s", o.message.size ? buf_str(&o.message) : strerror(-r));
	} else if (c.version) {
		(void)printf("flame-backend %s\n", FLAME_VERSION);
		code = EXIT_SUCCESS;
	} else if (c.sample_config) {
		_cleanup_(buf_done) struct buf text = BUF_INIT(TEXT_MAX);

		(void)opts_sample_config(specs, &text); /* fits */
		(void)fputs(buf_str(&text), stdout);
		code = EXIT_SUCCESS;
	} else {
		code = command(&c, argc - first, argv + first);
	}
	opts_done(&o);
	return code;
}
