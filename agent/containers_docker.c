/*
 * Docker's GET /containers/json, which Podman answers, too:
 *	[{"Id":"64 hex digits","Names":["/web"],"Image":"nginx:1.25","Labels":{"key":"value"}}]
 * Labels are those of Compose, of Podman's compose, and, where Kubernetes runs on Docker, of dockershim.
 */
#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/containers_internal.h"
#include "base/def.h"

static const char *text_of(const cJSON *o, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

	return cJSON_IsString(v) && v->valuestring ? v->valuestring : "";
}

static const char *first_of(const cJSON *o, const char *const *keys)
{
	const char *text = "";

	for (; *keys && !*text; keys++)
		text = text_of(o, *keys);
	return text;
}

/* "/web", or "/other/web" for a link; the first is its own. */
static const char *name_of(const cJSON *o)
{
	const cJSON *v = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(o, "Names"), 0);
	const char *name = cJSON_IsString(v) && v->valuestring ? v->valuestring : "";

	return name + strspn(name, "/");
}

static int tell(const cJSON *o, struct arena *a, containers_fn *fn, void *data)
{
	static const char *const projects[] = {
		"com.docker.compose.project", "io.podman.compose.project", NULL};
	static const char *const services[] = {"com.docker.compose.service",
		"io.podman.compose.service", "com.docker.swarm.service.name", NULL};
	const cJSON *labels = cJSON_GetObjectItemCaseSensitive(o, "Labels");
	const char *id = text_of(o, "Id");
	char workload[CONTAINER_TEXT_MAX + 1] = "";
	struct container_pod pod = {.name = text_of(labels, "io.kubernetes.pod.name"), .host = ""};
	struct container c = {
		.fields = {
			[CONTAINER_NAME] = name_of(o),
			[CONTAINER_IMAGE] = text_of(o, "Image"),
			[CONTAINER_POD] = pod.name,
			[CONTAINER_NAMESPACE] = text_of(labels, "io.kubernetes.pod.namespace"),
			[CONTAINER_WORKLOAD] = first_of(labels, services),
			[CONTAINER_PROJECT] = first_of(labels, projects),
		}};

	if (!container_id_is_good(id, strlen(id)))
		return 0;
	if (*pod.name) {
		container_workload(&pod, workload);
		c.fields[CONTAINER_WORKLOAD] = workload;
	}
	for (size_t i = 0; i < CONTAINER_FIELDS; i++) {
		c.fields[i] = arena_strdup(a, c.fields[i]);
		if (!c.fields[i])
			return -ENOMEM;
	}
	id = arena_strdup(a, id);
	if (!id)
		return -ENOMEM;
	fn(id, &c, data);
	return 0;
}

int containers_read_docker(
	const void *json, size_t size, struct arena *a, containers_fn *fn, void *data)
{
	cJSON *root = cJSON_ParseWithLength(json, size);
	const cJSON *o;
	size_t n = 0;
	int r = cJSON_IsArray(root) ? 0 : -EBADMSG;

	cJSON_ArrayForEach(o, root)
	{
		if (r < 0 || n++ == CONTAINERS_LISTED_MAX)
			break;
		r = tell(o, a, fn, data);
	}
	cJSON_Delete(root);
	return r;
}
