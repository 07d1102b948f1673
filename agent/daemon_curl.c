/* See daemon_curl.h. Any of the library's builds will do; the GnuTLS one shares our TLS stack. */
#include "agent/daemon_curl.h"

#include <dlfcn.h>
#include <errno.h>

#include "base/def.h"

static const char *const names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};

static void *open_library(struct buf *why)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);

		if (library)
			return library;
		if (i == 0)
			(void)buf_printf(why, "%s (install libcurl3-gnutls)", dlerror());
	}
	return NULL;
}

int daemon_curl_load(struct daemon_curl *ret, struct buf *why)
{
	void *library = open_library(why);
	struct daemon_curl c;

	if (!library)
		return -ENOENT;
	buf_reset(why);
#define DAEMON_CURL_FIND(name)                                      \
	c.name = (__typeof__(c.name))dlsym(library, "curl_" #name); \
	if (!c.name)                                                \
		(void)buf_printf(why, "libcurl has no curl_%s; ", #name);
	DAEMON_CURL_FUNCTIONS(DAEMON_CURL_FIND)
#undef DAEMON_CURL_FIND
	if (why->size > 0)
		return -EIO;
	if (c.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		(void)buf_append_str(why, "libcurl cannot be initialized");
		return -EIO;
	}
	*ret = c;
	return 0;
}
