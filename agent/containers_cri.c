/*
 * CRI (k8s.io/cri-api, runtime/v1/api.proto). Of its messages we read
 *	ListPodSandboxResponse	1 items: PodSandbox
 *	PodSandbox		1 id, 2 metadata (1 name, 3 namespace), 5 labels, 6 annotations
 *	ListContainersResponse	1 containers: Container
 *	Container		1 id, 2 pod_sandbox_id, 3 metadata (1 name), 4 image (1 image,
 *				18 user_specified_image), 8 labels
 *	map entry		1 key, 2 value
 * v1alpha2 has the same numbers. All texts are copied, with a NUL byte as their end.
 */
#include <errno.h>

#include "agent/containers_internal.h"
#include "base/def.h"
#include "base/map.h"
#include "prof/proto.h"

enum { CRI_TEXT_MAX = 4096, GRPC_HEAD = 5 };

struct pod {
	const char *id, *name, *space, *workload;
};

struct reader {
	struct arena *arena;
	const char *host;
	struct map *index; /* sandbox id -> number in pods */
	struct pod *pods;  /* CONTAINERS_LISTED_MAX */
	size_t count;
	bool is_bad, is_full;
};

bool containers_grpc_message(const void *body, size_t size, struct cursor *ret)
{
	const uint8_t *b = body;
	size_t n;

	if (size < GRPC_HEAD || b[0] != 0)
		return false;
	n = (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
	if (n != size - GRPC_HEAD)
		return false;
	*ret = cursor_over(b + GRPC_HEAD, n);
	return true;
}

/* A copy of a text field; "" when it is none, too long, or there is no room. */
static const char *text_of(struct reader *r, const struct proto_field *f)
{
	const char *copy;

	if (f->wire != PROTO_BYTES || cursor_left(&f->bytes) > CRI_TEXT_MAX)
		return "";
	copy = arena_strndup(r->arena, (const char *)f->bytes.pos, cursor_left(&f->bytes));
	r->is_full |= !copy;
	return copy ? copy : "";
}

/* The text of one field of a message; the last one counts. */
static const char *text_in(struct reader *r, const struct proto_field *message, uint32_t number)
{
	struct cursor c = message->bytes;
	struct proto_field f;
	const char *text = "";

	if (message->wire != PROTO_BYTES)
		return "";
	while (proto_next(&c, &f))
		if (f.number == number)
			text = text_of(r, &f);
	r->is_bad |= cursor_error(&c) < 0;
	return text;
}

static void read_entry(struct reader *r, const struct proto_field *entry, struct container_pod *p)
{
	const struct {
		const char *key;
		const char **to;
	} known[] = {
		{"app.kubernetes.io/name", &p->app},
		{"pod-template-hash", &p->template_hash},
		{"controller-revision-hash", &p->revision},
		{"statefulset.kubernetes.io/pod-name", &p->stateful_name},
		{"batch.kubernetes.io/job-name", &p->job},
		{"job-name", &p->job},
	};
	const char *key = text_in(r, entry, 1);

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(key, known[i].key) == 0)
			*known[i].to = text_in(r, entry, 2);
	if (strcmp(key, "kubernetes.io/config.source") == 0)
		p->is_static = strcmp(text_in(r, entry, 2), "api") != 0;
}

static void read_pod(struct reader *r, struct cursor c)
{
	struct container_pod p = {.name = "", .host = r->host};
	struct pod pod = {.id = "", .space = "", .workload = ""};
	char workload[CONTAINER_TEXT_MAX + 1];
	struct proto_field f;
	uint64_t *v;
	bool is_new;

	while (proto_next(&c, &f)) {
		if (f.number == 1) {
			pod.id = text_of(r, &f);
		} else if (f.number == 2) {
			p.name = text_in(r, &f, 1);
			pod.space = text_in(r, &f, 3);
		} else if (f.number == 5 || f.number == 6) {
			read_entry(r, &f, &p);
		}
	}
	r->is_bad |= cursor_error(&c) < 0;
	if (r->count == CONTAINERS_LISTED_MAX || !container_id_is_good(pod.id, strlen(pod.id)) ||
		!*p.name)
		return;
	container_workload(&p, workload);
	pod.name = p.name;
	pod.workload = arena_strdup(r->arena, workload);
	v = map_put(r->index, pod.id, CGROUP_CONTAINER_MAX, &is_new);
	if (!v || !pod.workload || !is_new) {
		r->is_full |= !v || !pod.workload;
		return;
	}
	*v = r->count;
	r->pods[r->count++] = pod;
}

static void tell(const struct pod *pod, const char *id, const char *name, const char *image,
	containers_fn *fn, void *data)
{
	struct container c = {.fields = {[CONTAINER_NAME] = name,
				      [CONTAINER_IMAGE] = image,
				      [CONTAINER_POD] = pod ? pod->name : "",
				      [CONTAINER_NAMESPACE] = pod ? pod->space : "",
				      [CONTAINER_WORKLOAD] = pod ? pod->workload : "",
				      [CONTAINER_PROJECT] = ""}};

	fn(id, &c, data);
}

static void read_container(struct reader *r, struct cursor c, containers_fn *fn, void *data)
{
	const char *id = "", *pod_id = "", *name = "", *image = "", *wanted = "";
	struct proto_field f;
	uint64_t i = 0;
	bool has_pod;

	while (proto_next(&c, &f)) {
		if (f.number == 1) {
			id = text_of(r, &f);
		} else if (f.number == 2) {
			pod_id = text_of(r, &f);
		} else if (f.number == 3) {
			name = text_in(r, &f, 1);
		} else if (f.number == 4) {
			image = text_in(r, &f, 1);
			wanted = text_in(r, &f, 18);
		}
	}
	r->is_bad |= cursor_error(&c) < 0;
	if (!container_id_is_good(id, strlen(id)))
		return;
	has_pod = map_get(r->index, pod_id, strlen(pod_id), &i) && i < r->count;
	tell(has_pod ? &r->pods[i] : NULL, id, name, *wanted ? wanted : image, fn, data);
}

static void read_lists(
	struct reader *r, struct cursor pods, struct cursor list, containers_fn *fn, void *data)
{
	struct proto_field f;

	for (size_t n = 0; n < CONTAINERS_LISTED_MAX && proto_next(&pods, &f); n++)
		if (f.number == 1 && f.wire == PROTO_BYTES)
			read_pod(r, f.bytes);
	/* The sandbox is a container itself, which does nothing but wait. */
	for (size_t i = 0; i < r->count; i++)
		tell(&r->pods[i], r->pods[i].id, "pause", "", fn, data);
	for (size_t n = 0; n < CONTAINERS_LISTED_MAX && proto_next(&list, &f); n++)
		if (f.number == 1 && f.wire == PROTO_BYTES)
			read_container(r, f.bytes, fn, data);
	r->is_bad |= cursor_error(&pods) < 0 || cursor_error(&list) < 0;
}

int containers_read_cri(struct cursor pods, struct cursor list, const char *host, struct arena *a,
	containers_fn *fn, void *data)
{
	_cleanup_(map_freep) struct map *index = map_new(CONTAINERS_LISTED_MAX);
	struct reader r = {.arena = a, .host = host, .index = index};

	r.pods = arena_alloc(a, CONTAINERS_LISTED_MAX * sizeof(*r.pods));
	if (!index || !r.pods)
		return -ENOMEM;
	read_lists(&r, pods, list, fn, data);
	return r.is_full ? -ENOMEM : r.is_bad ? -EBADMSG : 0;
}
