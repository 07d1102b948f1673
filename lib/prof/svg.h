/*
 * An interactive flame graph in one SVG file: zoom by click, search with the matched share (union
 * of widths, literal text), hover shows the whole name, value and share, keyboard reachable, works
 * from file://, loads nothing (CSP-safe: no eval, text only through textContent). Frames narrower
 * than width_min px are left out of the drawing and counted in the file's footer.
 *
 * Layout: root at the bottom ("all"), sorted by name as flame graphs are; the kind gives the hue.
 */
#ifndef PROF_SVG_H
#define PROF_SVG_H

#include "base/buf.h"
#include "prof/profile.h"

struct svg_options {
	size_t type;           /* sample type index */
	const char *title;     /* NULL: "Flame graph" */
	const char *subtitle;  /* NULL: none; e.g. event, rate, losses */
	unsigned int width_px; /* 0: 1200 */
	bool with_comm;        /* process name as first level */
};

/* An empty profile gives a valid picture that says "no samples". 0, buf's error, -ENOMEM, -EINVAL
 * (no such sample type). */
int svg_write(const struct profile *p, const struct svg_options *o, struct buf *out);

#endif
