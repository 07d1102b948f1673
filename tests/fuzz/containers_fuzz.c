/* links: agent */
/*
 * containers: what a runtime may answer. The first byte says as what the rest is read: 0 a gRPC body (the same as
 * list of pods and of containers), 1 Docker's JSON, else a line of the cache. Whatever is told is an id with
 * texts that make a line, which says the same again.
 */
#include "agent/containers_internal.h"

#include <assert.h>

#include "base/def.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *id, const struct container *c, void *data)
{
	_cleanup_(buf_done) struct buf line = BUF_INIT(1 << 16);
	struct container_line l;

	(void)data;
	assert(container_id_is_good(id, strlen(id)));
	assert(container_line_write(&line, id, 7, c) == 0);
	assert(container_line_read(buf_str(&line), line.size - 1, &l));
	assert(strcmp(l.id, id) == 0 && l.time_s == 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(arena_freep) struct arena *a = arena_new(CONTAINERS_ARENA_MAX);
	struct container_line l;
	struct cursor pods, list;

	assert(a);
	if (size == 0)
		return 0;
	if (data[0] == 0) {
		if (containers_grpc_message(data + 1, size - 1, &pods)) {
			list = pods;
			(void)containers_read_cri(pods, list, "host", a, check, NULL);
		}
	} else if (data[0] == 1) {
		(void)containers_read_docker(data + 1, size - 1, a, check, NULL);
	} else if (container_line_read((const char *)data + 1, size - 1, &l)) {
		for (size_t i = 0; i < CONTAINER_FIELDS; i++)
			assert(l.fields[i].size <= CONTAINER_TEXT_MAX &&
				str_is_utf8(l.fields[i].at, l.fields[i].size));
	}
	return 0;
}
