/*
 * What a campaign leaves for people and for machines. Each function writes one format; names are
 * escaped here, at the edge. results.json holds nothing that differs between two runs of the same
 * inputs in exact mode: host times and dates stand in timings.json.
 */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include "base/buf.h"
#include "lab/campaign.h"

/* All return 0 or buf's error. */
int report_text(const struct campaign *c, bool color, struct buf *out);
/* Every red and every unmeasured gate once more, a line each: what remains of a log is its end. */
int report_failures(const struct campaign *c, struct buf *out);
/* "N passed, N failed, N skipped", the last line of a run; unmeasured and excused are skipped. */
int report_last_line(const struct policy_counts *n, struct buf *out);
int report_results(const struct campaign *c, struct buf *out);
int report_timings(const struct campaign *c, struct buf *out);
int report_certificate(const struct campaign *c, struct buf *out);
int report_junit(const struct campaign *c, struct buf *out);
int report_markdown(const struct campaign *c, struct buf *out);
/* One self-contained file: flame graphs as images in data: URLs, no script, no loads. */
int report_html(const struct campaign *c, struct buf *out);

/* gnuplot pictures into c->place.out/plots. 0; 1 gnuplot is not installed; -errno. */
int report_plots(const struct campaign *c);

/* Writes all of them into c->place.out. 0, or the first -errno with the file's name in *which. */
int report_write_all(const struct campaign *c, const char **which);

/* For tests and report_junit: text that XML 1.0 can hold, escaped, at most size_max bytes. */
int report_xml(struct buf *out, const char *text, size_t size_max);
/*
 * What stands in the verdict column's text: the worst check, but for a gate that passed in a mode
 * whose clocks are not exact only that it held, so that two runs print the same.
 */
const char *report_gate_text(const struct campaign_item *it, const struct gate *g, char ret[320]);
/* "[variant] " or "" in front of a gate's text. */
const char *report_variant(const struct gate *g, char ret[64]);
/* "7.5 ms", "1.234 %" of a check's number. */
const char *report_number(const char *unit, double v, char ret[48]);

#endif
