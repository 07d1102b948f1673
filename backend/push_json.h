/*
 * push.v1's PushRequest as the Connect protocol's JSON codec writes it (protobuf's JSON mapping):
 *	{"series":[{"labels":[{"name":"","value":""}],"samples":[{"rawProfile":"BASE64","ID":""}]}]}
 * rawProfile may be called raw_profile, its base64 may be the URL's and without padding.
 */
#ifndef BACKEND_PUSH_JSON_H
#define BACKEND_PUSH_JSON_H

#include "base/buf.h"

/*
 * Writes hostile JSON as the protobuf message that push_read checks, so both codecs have one set of limits. 0;
 * -EBADMSG with a static one-line *why; -ENOBUFS out's limit; -ENOMEM.
 */
int push_json_read(const void *json, size_t size, const char **why, struct buf *out);

#endif
