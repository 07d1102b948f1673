/*
 * libcurl, loaded when the daemon starts and by nobody else. Linking it would load some thirty
 * libraries into `flame-agent record` and into the helper process that parses hostile bytes, too:
 * 3 MB and 4 ms of CPU in each of them. Delete this when libcurl comes with fewer.
 */
#ifndef AGENT_DAEMON_CURL_H
#define AGENT_DAEMON_CURL_H

#include <curl/curl.h>

#include "base/buf.h"

#define DAEMON_CURL_FUNCTIONS(X) \
	X(global_init)           \
	X(easy_init)             \
	X(easy_cleanup)          \
	X(easy_setopt)           \
	X(easy_perform)          \
	X(easy_reset)            \
	X(easy_getinfo)          \
	X(easy_strerror)         \
	X(slist_append)          \
	X(slist_free_all)        \
	X(multi_init)            \
	X(multi_cleanup)         \
	X(multi_setopt)          \
	X(multi_assign)          \
	X(multi_add_handle)      \
	X(multi_remove_handle)   \
	X(multi_socket_action)   \
	X(multi_info_read)       \
	X(multi_strerror)

struct daemon_curl {
#define DAEMON_CURL_MEMBER(name) __typeof__(curl_##name) *name;
	DAEMON_CURL_FUNCTIONS(DAEMON_CURL_MEMBER)
#undef DAEMON_CURL_MEMBER
};

/* Loads it once for the life of the process. 0; -ENOENT or -EIO with one line in why. */
int daemon_curl_load(struct daemon_curl *ret, struct buf *why);

#endif
