/*
 * Strict reading of small JSON files (scenarios, truths, results) over cJSON: every field is named,
 * typed and bounded, and the first thing that is wrong is kept as one line for people:
 *	FILE: workload.args[2]: must be a string
 * After a failure every accessor yields zero values, so a reader may take a whole file and ask once,
 * with json_failed(). Strings live in the document, until json_done().
 */
#ifndef LAB_JSON_H
#define LAB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_PATH_MAX = 160, JSON_MESSAGE_MAX = 640, JSON_SIZE_MAX = 64 << 20 };

struct cJSON;

struct json {
	char file[256]; /* as shown in messages */
	char message[JSON_MESSAGE_MAX];
	bool failed;
	struct cJSON *root;
};

/* A place in the document; node NULL when the field is absent. */
struct json_at {
	struct json *doc;
	const struct cJSON *node;
	char path[JSON_PATH_MAX];
};

/* Parses data; -EBADMSG with j->message. j must be given to json_done() in any case. */
int json_parse(struct json *j, const char *file, const void *data, size_t size);
/* The same with the file's content. -EBADMSG, or -errno of reading with j->message. */
int json_load(struct json *j, const char *path);
void json_done(struct json *j); /* accepts NULL and zeroed; usable as cleanup attribute */
bool json_failed(const struct json *j);
/* Keeps the first message, "FILE: PATH: " and the text. */
void json_fail(const struct json_at *at, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

struct json_at json_root(struct json *j);
bool json_present(const struct json_at *at);
bool json_is_text(const struct json_at *at);
bool json_is_null(const struct json_at *at); /* the literal null, not absence */
/* Fails unless at is an object whose fields are all among the NULL-terminated names, each once. */
bool json_object(const struct json_at *at, const char *const names[]);
/* Fails unless at is an object; further fields are allowed. */
bool json_open_object(const struct json_at *at);
/* The field, which may be absent; the second form fails then. */
struct json_at json_field(const struct json_at *at, const char *name);
struct json_at json_need(const struct json_at *at, const char *name);
/* Number of elements, at most max, else it fails and gives 0. Absent: 0. */
size_t json_array(const struct json_at *at, size_t min, size_t max);
struct json_at json_item(const struct json_at *at, size_t i); /* linear in i */
/* Calls for each field of an object in file order; false after the last. Start with *i = 0. */
bool json_next_field(const struct json_at *at, size_t *i, struct json_at *ret, const char **name);

/* Values of present fields; an absent one gives the default. Integers must be whole, below 2^53. */
const char *json_text(const struct json_at *at, const char *def, size_t size_min, size_t size_max);
uint64_t json_u64(const struct json_at *at, uint64_t def, uint64_t min, uint64_t max);
int64_t json_i64(const struct json_at *at, int64_t def, int64_t min, int64_t max);
double json_f64(const struct json_at *at, double def, double min, double max);
bool json_bool(const struct json_at *at, bool def);
/* Index of the text in the NULL-terminated choices. */
size_t json_choice(const struct json_at *at, size_t def, const char *const choices[]);
enum { JSON_EXIT_SIZE = 64 };
/*
 * How a process ended, which field name must say: null ("never ran"), a number, or a text such as
 * "signal 9".
 */
void json_exit(const struct json_at *root, const char *name, char ret[JSON_EXIT_SIZE]);

#endif
