/* What the report's files share. */
#ifndef LAB_REPORT_INTERNAL_H
#define LAB_REPORT_INTERNAL_H

#include "base/buf.h"
#include "lab/evidence.h"

enum { REPORT_SVG_MAX = 32 << 20, REPORT_HTML_MAX = 256 << 20 };

void report_base64(struct buf *out, const char *data, size_t size);
/* The interactive flame graph of a step that has a profile. 0 or svg_write()'s error. */
int report_flame(const struct evidence *e, struct buf *out);

#endif
