/*
 * The few macros that every file may use: cleanup attributes, array sizes, and the poison that
 * keeps unsafe calls from compiling (STYLE 16, 24).
 *
 * A cleanup attribute stands at the declaration that also assigns:
 *	_cleanup_(freep) char *s = strdup(x);
 *	_cleanup_(closep) int fd = open(...);
 * steal_ptr()/steal_fd() hand the value on and leave nothing to clean.
 */
#ifndef BASE_DEF_H
#define BASE_DEF_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h> /* declares what is poisoned below, so it must come first */
#include <unistd.h>

#define _cleanup_(fn)       __attribute__((cleanup(fn)))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _unused_            __attribute__((unused))
#define _must_check_        __attribute__((warn_unused_result))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

#define NSEC_PER_SEC  1000000000ULL
#define NSEC_PER_MSEC 1000000ULL

static inline void freep(void *pp)
{
	free(*(void **)pp);
}

static inline void closep(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing can be done about a failed close of a read-only fd */
}

static inline void fclosep(FILE **f)
{
	if (*f)
		(void)fclose(
			*f); /* writers check fclose() themselves before they steal the pointer */
}

static inline int steal_fd(int *fd)
{
	int ret = *fd;

	*fd = -1;
	return ret;
}

#define steal_ptr(pp)                              \
	({                                         \
		__typeof__(*(pp)) stolen_ = *(pp); \
		*(pp) = NULL;                      \
		stolen_;                           \
	})

#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atof gets localtime gmtime alloca

#endif
