/* links: agent */
/* cgroup: any bytes as /proc/PID/cgroup; a path that is chosen stands there, and so does its container. */
#include "agent/cgroup.h"

#include <assert.h>

#include "base/def.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char path[CGROUP_PATH_MAX];
	char unit[CGROUP_UNIT_MAX];
	char id[CGROUP_CONTAINER_MAX + 1];

	assert(text);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	if (cgroup_of_process(text, path)) {
		assert(path[0] == '/' && strlen(path) < CGROUP_PATH_MAX && !strchr(path, '\n'));
		assert(strstr(text, path));
		if (cgroup_container(path, id))
			assert(strlen(id) == CGROUP_CONTAINER_MAX && strstr(path, id));
		if (cgroup_unit(path, unit))
			assert(strstr(path, unit));
	}
	(void)cgroup_find_mount(text, path); /* stays within its bounds */
	(void)cgroup_find_mount_v1(text, "memory", path);
	free(text);
	return 0;
}
