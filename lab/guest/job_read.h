/* Reads the text that lab/job.c writes (format: lab/job.h). */
#ifndef LAB_GUEST_JOB_READ_H
#define LAB_GUEST_JOB_READ_H

#include "lab/job.h"

/*
 * Parses text in place; *ret points into it and into one allocation that lives as long as the
 * program. 0; -EINVAL with *ret_line set to the line that is wrong; -ENOMEM.
 */
int job_read(char *text, struct job *ret, unsigned int *ret_line);

#endif
