/*
 * key=value lines on stderr, for programs only (lib/ never logs). One call is one line and one
 * write(2):
 *
 *	log_error("record", "open output", -errno, "file=%s", path);
 *
 * gives level=error area=record action="open output" error="Permission denied" file=/x
 *
 * Lines of one area+action are limited to 10 a minute; the next one that passes says suppressed=N.
 * Control and malformed bytes in a value become U+FFFD; a line is cut at 4096 bytes. Any thread may
 * log; the log_set_ functions are for the start of main.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/def.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);     /* default LOG_LEVEL_INFO */
void log_set_fd(int fd);                      /* for tests; default 2 */
void log_set_clock(uint64_t (*now_ns)(void)); /* for tests; default loop_now_ns, also for NULL */
/* error: 0 or -errno. fmt: further "key=value" pairs or "". */
void log_line(enum log_level level, const char *area, const char *action, int error,
	const char *fmt, ...) _printf_(5, 6);

#define log_error(area, action, error, ...) \
	log_line(LOG_LEVEL_ERROR, area, action, error, __VA_ARGS__)
#define log_warn(area, action, error, ...) \
	log_line(LOG_LEVEL_WARN, area, action, error, __VA_ARGS__)
#define log_info(area, action, ...)  log_line(LOG_LEVEL_INFO, area, action, 0, __VA_ARGS__)
#define log_debug(area, action, ...) log_line(LOG_LEVEL_DEBUG, area, action, 0, __VA_ARGS__)

#endif
