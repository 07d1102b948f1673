/*
 * `flame-agent __containers SOCKET|auto HOST`: reads ids from stdin, one a line, asks the runtimes of
 * this host for their containers, writes a line (containers_internal.h) for each id that one knows, and
 * is gone. It gives up its capabilities first, every request has a second, and all of it ALARM_S.
 *
 * A socket is used only if it is one, belongs to root, and no link is on the way to it: a container may
 * mount and make what it likes, but not that. It is opened once and connected to by its descriptor, so
 * what was looked at is what is spoken to.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/containers_internal.h"
#include "agent/daemon_curl.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/str.h"

enum { ALARM_S = 4, CPU_S = 2, IDS_BYTES_MAX = CONTAINERS_ASKED_MAX * (CGROUP_CONTAINER_MAX + 1) };
static const long REQUEST_MS = 1000;
static const rlim_t MEMORY_MAX = 512UL << 20;

enum protocol { CRI, DOCKER, CRI_OR_DOCKER };

static const struct runtime {
	const char *socket;
	enum protocol protocol;
} runtimes[] = {
	{"/run/containerd/containerd.sock", CRI},
	{"/run/k3s/containerd/containerd.sock", CRI},
	{"/run/crio/crio.sock", CRI},
	{"/run/cri-dockerd.sock", CRI},
	{"/run/docker.sock", DOCKER},
	{"/run/podman/podman.sock", DOCKER},
};

struct asker {
	struct daemon_curl curl;
	CURL *easy;
	struct map *wanted; /* id -> 1 when it was answered */
	size_t left;
	struct buf out; /* lines */
	const char *host;
};

static int confine(void)
{
	static const struct {
		__rlimit_resource_t what;
		rlim_t max;
	} limits[] = {{RLIMIT_AS, MEMORY_MAX}, {RLIMIT_CPU, CPU_S}, {RLIMIT_CORE, 0},
		{RLIMIT_NOFILE, 64}};
	cap_t none = cap_init();
	int r = none && cap_set_proc(none) == 0 ? 0 : -EPERM;

	(void)cap_free(none); /* NULL, too */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(limits); i++)
		if (setrlimit(limits[i].what, &(struct rlimit){limits[i].max, limits[i].max}) < 0)
			r = -errno;
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	(void)alarm(ALARM_S); /* there was none before */
	return r;
}

/* The socket as a descriptor, or -errno. */
static int open_socket(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	_cleanup_(closep) int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode) || st.st_uid != 0)
		return -EPERM;
	return steal_fd(&fd);
}

static size_t take_body(char *bytes, size_t size, size_t count, void *data)
{
	return buf_append(data, bytes, size * count) == 0 ? count : 0;
}

/* grpc-status stands in the trailers, or in the only headers there are. */
static size_t take_header(char *bytes, size_t size, size_t count, void *data)
{
	static const char key[] = "grpc-status:";
	long *status = data;

	if (size * count > strlen(key) + 1 && strncasecmp(bytes, key, strlen(key)) == 0)
		*status = strtol(bytes + strlen(key), NULL, 10); /* a header ends with CRLF */
	return count;
}

struct request {
	const char *path; /* "/..." */
	bool is_grpc;
};

/* One request. 0; -ENOSYS: that method is not there; -EPROTO: it is another protocol; -EIO. */
static int ask(struct asker *a, int socket, const struct request *q, struct buf *body)
{
	struct daemon_curl *c = &a->curl;
	struct curl_slist *headers = NULL;
	char url[128], address[64];
	long http = 0, grpc = -1;
	CURLcode r;

	(void)snprintf(url, sizeof(url), "http://localhost%s", q->path);
	(void)snprintf(address, sizeof(address), "/proc/self/fd/%d", socket);
	c->easy_reset(a->easy);
	if (q->is_grpc) {
		headers = c->slist_append(headers, "content-type: application/grpc");
		headers = c->slist_append(headers, "te: trailers");
		(void)c->easy_setopt(
			a->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
		(void)c->easy_setopt(a->easy, CURLOPT_POSTFIELDSIZE, 5L);
		(void)c->easy_setopt(a->easy, CURLOPT_POSTFIELDS, "\0\0\0\0\0"); /* no filter */
		(void)c->easy_setopt(a->easy, CURLOPT_HTTPHEADER, headers);
	}
	(void)c->easy_setopt(a->easy, CURLOPT_URL, url);
	(void)c->easy_setopt(a->easy, CURLOPT_UNIX_SOCKET_PATH, address);
	(void)c->easy_setopt(a->easy, CURLOPT_PROXY, "");
	/* Debian 12's libcurl 7.88 fails the second request on a connection of HTTP/2 by prior knowledge. */
	(void)c->easy_setopt(a->easy, CURLOPT_FORBID_REUSE, 1L);
	(void)c->easy_setopt(a->easy, CURLOPT_NOSIGNAL, 1L);
	(void)c->easy_setopt(a->easy, CURLOPT_TIMEOUT_MS, REQUEST_MS);
	(void)c->easy_setopt(a->easy, CURLOPT_WRITEFUNCTION, take_body);
	(void)c->easy_setopt(a->easy, CURLOPT_WRITEDATA, body);
	(void)c->easy_setopt(a->easy, CURLOPT_HEADERFUNCTION, take_header);
	(void)c->easy_setopt(a->easy, CURLOPT_HEADERDATA, &grpc);
	r = c->easy_perform(a->easy);
	(void)c->easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &http);
	c->slist_free_all(headers);
	if (r == CURLE_OPERATION_TIMEDOUT || r == CURLE_COULDNT_CONNECT)
		return -EIO;
	if (q->is_grpc && grpc > 0)
		return grpc == 12 ? -ENOSYS : -EIO; /* UNIMPLEMENTED */
	return r == CURLE_OK && http == 200 && (!q->is_grpc || grpc == 0) ? 0 : -EPROTO;
}

/* The runtime knows a container; only the wanted ones are told, each once. */
static void on_container(const char *id, const struct container *c, void *data)
{
	struct asker *a = data;
	uint64_t answered;
	uint64_t *v;

	if (!map_get(a->wanted, id, CGROUP_CONTAINER_MAX, &answered) || answered)
		return;
	v = map_put(a->wanted, id, CGROUP_CONTAINER_MAX, NULL);
	if (!v || container_line_write(&a->out, id, 0, c) < 0)
		return;
	*v = 1;
	a->left--;
}

static int ask_cri_version(struct asker *a, int socket, const char *version)
{
	_cleanup_(arena_freep) struct arena *arena = arena_new(CONTAINERS_ARENA_MAX);
	_cleanup_(buf_done) struct buf pods = BUF_INIT(CONTAINERS_RUNTIME_MAX);
	_cleanup_(buf_done) struct buf list = BUF_INIT(CONTAINERS_RUNTIME_MAX);
	struct cursor pods_at, list_at;
	char path[96];
	int r;

	(void)snprintf(path, sizeof(path), "/runtime.%s.RuntimeService/ListPodSandbox", version);
	r = ask(a, socket, &(struct request){.path = path, .is_grpc = true}, &pods);
	(void)snprintf(path, sizeof(path), "/runtime.%s.RuntimeService/ListContainers", version);
	if (r == 0)
		r = ask(a, socket, &(struct request){.path = path, .is_grpc = true}, &list);
	if (r < 0)
		return r;
	if (!arena)
		return -ENOMEM;
	if (!containers_grpc_message(pods.data, pods.size, &pods_at) ||
		!containers_grpc_message(list.data, list.size, &list_at))
		return -EBADMSG;
	return containers_read_cri(pods_at, list_at, a->host, arena, on_container, a);
}

static int ask_docker(struct asker *a, int socket)
{
	_cleanup_(arena_freep) struct arena *arena = arena_new(CONTAINERS_ARENA_MAX);
	_cleanup_(buf_done) struct buf body = BUF_INIT(CONTAINERS_RUNTIME_MAX);
	int r = ask(a, socket, &(struct request){.path = "/containers/json"}, &body);

	if (r == 0 && !arena)
		r = -ENOMEM;
	return r == 0 ? containers_read_docker(buf_str(&body), body.size, arena, on_container, a)
		      : r;
}

static void ask_runtime(struct asker *a, const struct runtime *t, bool is_named)
{
	_cleanup_(closep) int socket = open_socket(t->socket);
	int r = socket < 0 ? socket : 0;

	/* What is not there was not meant, unless it was named. */
	if ((r == -ENOENT || r == -ENOTDIR) && !is_named)
		return;
	if (r == 0 && t->protocol != DOCKER) {
		r = ask_cri_version(a, socket, "v1");
		if (r == -ENOSYS)
			r = ask_cri_version(a, socket, "v1alpha2");
	}
	if (t->protocol == DOCKER ? r == 0 : t->protocol == CRI_OR_DOCKER && r == -EPROTO)
		r = ask_docker(a, socket);
	if (r < 0)
		log_warn("containers", "ask the runtime", r,
			"socket=%s hint=\"containers are known by their ids only\"", t->socket);
}

static int read_wanted(struct asker *a)
{
	_cleanup_(buf_done) struct buf ids = BUF_INIT(IDS_BYTES_MAX);
	int r = file_read_fd(STDIN_FILENO, &ids);
	bool is_new;

	for (const char *at = buf_str(&ids); r == 0 && *at; at += *at == '\n') {
		size_t size = strcspn(at, "\n");

		if (container_id_is_good(at, size)) {
			if (!map_put(a->wanted, at, size, &is_new))
				r = -ENOMEM;
			else
				a->left += is_new;
		}
		at += size;
	}
	return r;
}

static int run(struct asker *a, const char *runtime)
{
	_cleanup_(buf_done) struct buf why = BUF_INIT(1024);
	struct runtime named = {.socket = runtime, .protocol = CRI_OR_DOCKER};
	int r = confine();

	if (r == 0)
		r = read_wanted(a);
	if (r == 0)
		r = daemon_curl_load(&a->curl, &why);
	if (r != 0) {
		log_warn("containers", "start", r, "why=\"%s\"", buf_str(&why));
		return r;
	}
	a->easy = a->curl.easy_init();
	if (!a->easy)
		return -ENOMEM;
	if (strcmp(runtime, "auto") != 0)
		ask_runtime(a, &named, true);
	else
		for (size_t i = 0; i < ARRAY_SIZE(runtimes) && a->left > 0; i++)
			ask_runtime(a, &runtimes[i], false);
	a->curl.easy_cleanup(a->easy);
	return file_write_all(STDOUT_FILENO, buf_str(&a->out), a->out.size);
}

int containers_main(int argc, char **argv)
{
	struct asker a = {
		.out = BUF_INIT(CONTAINERS_ANSWER_MAX), .wanted = map_new(CONTAINERS_ASKED_MAX)};
	int r = -EINVAL;

	if (argc == 3 && a.wanted) {
		a.host = argv[2];
		r = run(&a, argv[1]);
	}
	map_free(a.wanted);
	buf_done(&a.out);
	return r == 0 ? 0 : 1;
}
