/*
 * The flame graph as SVG: layout and XML.
 *
 * Positions are whole numbers of 1e-9 of the graph's width, rounded down at both ends of a frame,
 * so that children never stick out of their parent and the script can zoom without the values.
 * Pixels are printed from integers: no locale, no floating point, the same bytes for the same
 * profile.
 *
 *	svg.flamelab
 *	  g.head		title, subtitle, "reset zoom", search box, matched share, details
 *	  g.f data-x data-w data-d	one per frame, preorder; title = name \n module, kind \n values
 *	  legend, footer
 *
 * Without script it is a plain picture with tooltips. Names are cut first and escaped afterwards.
 */
#include "prof/svg.h"

#include <errno.h>

#include "base/def.h"
#include "base/str.h"
#include "prof/svg_internal.h"
#include "prof/tree.h"

enum {
	WIDTH_DEFAULT_PX = 1200,
	WIDTH_MIN_PX = 300,
	WIDTH_MAX_PX = 20000,
	PAD_PX = 10,
	ROW_PX = 16,
	HEAD_PX = 84,
	FOOT_PX = 56,
	CHAR_CENTIPX = 722, /* a cell of the 12 px monospace font, rounded up */
	GAP_CENTIPX = 50,
	GAP_FROM_CENTIPX = 300,
	LABEL_CELLS_MIN = 3,
	SVG_UNITS = 1000000000,
	WIDTH_MIN_UNITS_PX = SVG_UNITS / 10 * 3, /* 0.3 px, times the width in px */
	VALUE_TEXT_MAX = 64,
};

struct box {
	uint32_t node;
	uint32_t x; /* units */
	uint32_t width;
};

struct drawing {
	const struct profile *profile;
	const struct svg_options *options;
	struct tree *tree;
	struct box *boxes;
	size_t box_count;
	uint32_t depth_max; /* of what is drawn */
	uint32_t width_px;
	uint32_t inner_px;
	int64_t total;
	bool kinds[FRAME_KIND_COUNT]; /* drawn ones */
};

/* Light enough for black text; a name's hash picks a shade between the two. */
static const struct {
	uint8_t from[3], to[3];
	const char *label;
} kind_colours[FRAME_KIND_COUNT] = {
	[FRAME_NATIVE] = {{240, 160, 80}, {252, 214, 130}, "native"},
	[FRAME_KERNEL] = {{235, 130, 115}, {250, 170, 150}, "kernel"},
	[FRAME_PYTHON] = {{120, 175, 235}, {165, 210, 250}, "Python"},
	[FRAME_JAVA] = {{125, 205, 125}, {175, 230, 160}, "Java"},
	[FRAME_NODE] = {{190, 205, 90}, {220, 230, 140}, "Node.js"},
	[FRAME_GO] = {{100, 205, 215}, {160, 230, 235}, "Go"},
	[FRAME_OTHER] = {{200, 200, 200}, {222, 222, 222}, "process or marker"},
};

static uint32_t hash_name(const char *name)
{
	uint32_t h = 2166136261U; /* FNV-1a; the colour must not change with a library's version */

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619U;
	return h ^ h >> 15;
}

static void put_colour(struct buf *b, uint32_t kind, uint32_t shade)
{
	const uint8_t *from = kind_colours[kind].from;
	const uint8_t *to = kind_colours[kind].to;
	unsigned int c[3];

	for (size_t i = 0; i < 3; i++)
		c[i] = from[i] + (to[i] - from[i]) * (shade & 255U) / 255U;
	(void)buf_printf(b, "#%02x%02x%02x", c[0], c[1], c[2]);
}

static uint32_t to_units(__int128 value, int64_t total)
{
	if (value <= 0)
		return 0;
	return value >= total ? SVG_UNITS : (uint32_t)(value * SVG_UNITS / total);
}

/* What is placed next at one depth. Sums that were saturated must not leave their parent. */
struct row {
	__int128 next;      /* value where the next frame begins */
	uint32_t drawn_end; /* units where the last drawn frame ends */
};

/* One pass in preorder over the tree. */
static void place_boxes(struct drawing *d, struct row *rows)
{
	uint32_t least = WIDTH_MIN_UNITS_PX / d->inner_px;
	uint32_t i = 0;

	for (;;) {
		const struct tree_node *n = tree_at(d->tree, i);
		uint32_t parent_end = i ? rows[n->depth - 1].drawn_end : SVG_UNITS;
		struct row *row = &rows[n->depth];
		__int128 start = row->next;
		uint32_t x = to_units(start, d->total);
		uint32_t x_end;
		bool drawn;

		row->next += MAX(n->total, 0);
		x_end = MIN(to_units(row->next, d->total), parent_end);
		drawn = x_end > x && x_end - x >= least;
		if (drawn) {
			d->boxes[d->box_count++] =
				(struct box){.node = i, .x = x, .width = x_end - x};
			d->depth_max = MAX(d->depth_max, n->depth);
			d->kinds[n->kind] = true;
			row[1].next = start;
			row->drawn_end = x_end;
		}
		if (drawn && n->first_child) {
			i = n->first_child;
			continue;
		}
		while (i && !tree_at(d->tree, i)->next_sibling)
			i = tree_at(d->tree, i)->parent;
		if (!i)
			break;
		i = tree_at(d->tree, i)->next_sibling;
	}
}

static int lay_out(struct drawing *d)
{
	struct row *rows = calloc((size_t)tree_depth_max(d->tree) + 2, sizeof(*rows));
	int r;

	d->boxes = calloc(tree_count(d->tree), sizeof(*d->boxes));
	if (rows && d->boxes)
		place_boxes(d, rows);
	r = rows && d->boxes ? 0 : -ENOMEM;
	free(rows);
	return r;
}

static uint32_t to_centipx(const struct drawing *d, uint32_t units)
{
	return (uint32_t)((uint64_t)units * d->inner_px * 100 / SVG_UNITS);
}

static void put_centipx(struct buf *b, uint32_t centipx)
{
	(void)buf_printf(b, "%u.%02u", centipx / 100, centipx % 100);
}

static char *value_text(const struct drawing *d, int64_t value, char out[VALUE_TEXT_MAX])
{
	struct sample_type t = profile_type_at(d->profile, d->options->type);
	const char *unit = profile_text(d->profile, t.unit);
	char human[STR_HUMAN_MAX];

	if (strcmp(unit, "nanoseconds") == 0)
		(void)snprintf(out, VALUE_TEXT_MAX, "%s", str_human_ns((uint64_t)value, human));
	else if (strcmp(unit, "bytes") == 0)
		(void)snprintf(out, VALUE_TEXT_MAX, "%s", str_human_bytes((uint64_t)value, human));
	else
		(void)snprintf(out, VALUE_TEXT_MAX, "%lld", (long long)value);
	return out;
}

/* What follows a bare number: "samples" rather than "count". Empty when the text has its unit. */
static const char *value_noun(const struct drawing *d)
{
	struct sample_type t = profile_type_at(d->profile, d->options->type);
	const char *unit = profile_text(d->profile, t.unit);

	if (strcmp(unit, "nanoseconds") == 0 || strcmp(unit, "bytes") == 0)
		return "";
	return profile_text(d->profile, strcmp(unit, "count") == 0 ? t.type : t.unit);
}

static void put_value(struct buf *b, const struct drawing *d, int64_t value)
{
	const char *noun = value_noun(d);
	char text[VALUE_TEXT_MAX];

	(void)buf_append_str(b, value_text(d, value, text));
	if (*noun) {
		(void)buf_append_char(b, ' ');
		(void)str_append_xml(b, noun);
	}
}

static void put_share(struct buf *b, const struct drawing *d, int64_t value)
{
	int64_t basis_points =
		(int64_t)(((__int128)MAX(value, 0) * 10000 + d->total / 2) / d->total);

	(void)buf_printf(b, "%lld.%02lld %%", (long long)(basis_points / 100),
		(long long)(basis_points % 100));
}

/* Bytes of the UTF-8 character at s, which the profile guarantees to be valid. */
static size_t char_size(const char *s)
{
	size_t n = 1;

	while (((uint8_t)s[n] & 0xc0) == 0x80)
		n++;
	return n;
}

/* Characters from U+1100 on (CJK and such) are taken to be two cells wide, as in the script. */
static uint32_t char_cells(const char *s)
{
	const uint8_t *p = (const uint8_t *)s;

	return p[0] > 0xe1 || (p[0] == 0xe1 && p[1] >= 0x84) ? 2 : 1;
}

/* The name, or what fits of it and "..", escaped. */
static void put_label(struct buf *b, const char *name, uint32_t cells)
{
	char cut[PROFILE_NAME_MAX + 8];
	uint32_t used = 0;
	size_t keep = 0;

	if (cells < LABEL_CELLS_MIN)
		return;
	for (size_t at = 0; name[at];) {
		used += char_cells(name + at);
		at += char_size(name + at);
		if (used <= cells - 2)
			keep = at;
		if (used > cells) {
			(void)snprintf(cut, sizeof(cut), "%.*s..", (int)keep, name);
			(void)str_append_xml(b, cut);
			return;
		}
	}
	(void)str_append_xml(b, name);
}

static void put_tooltip(struct buf *b, const struct drawing *d, uint32_t node)
{
	const struct tree_node *n = tree_at(d->tree, node);
	const char *module = profile_text(d->profile, n->module);

	(void)buf_append_str(b, "<title>");
	(void)str_append_xml(b, tree_name(d->tree, node));
	(void)buf_append_char(b, '\n');
	if (*module) {
		(void)str_append_xml(b, module);
		(void)buf_append_str(b, ", ");
	}
	if (node)
		(void)buf_printf(b, "%s\n", kind_colours[n->kind].label);
	put_value(b, d, n->total);
	(void)buf_append_str(b, ", ");
	put_share(b, d, n->total);
	if (n->self > 0 && n->self != n->total) {
		(void)buf_append_str(b, " (self ");
		put_share(b, d, n->self);
		(void)buf_append_char(b, ')');
	}
	(void)buf_append_str(b, "</title>");
}

static void put_box(struct buf *b, const struct drawing *d, const struct box *x)
{
	const struct tree_node *n = tree_at(d->tree, x->node);
	const char *name = tree_name(d->tree, x->node);
	uint32_t left = to_centipx(d, x->x);
	uint32_t width = to_centipx(d, x->x + x->width) - left;
	uint32_t y = HEAD_PX + (d->depth_max - n->depth) * ROW_PX;

	(void)buf_printf(b, "<g class=\"f\" data-x=\"%u\" data-w=\"%u\" data-d=\"%u\">", x->x,
		x->width, n->depth);
	put_tooltip(b, d, x->node);
	(void)buf_append_str(b, "<rect x=\"");
	put_centipx(b, left + PAD_PX * 100);
	(void)buf_printf(b, "\" y=\"%u\" width=\"", y);
	/* A gap keeps neighbours apart without colour. */
	put_centipx(b, width > GAP_FROM_CENTIPX ? width - GAP_CENTIPX : width);
	(void)buf_printf(b, "\" height=\"%u\" fill=\"", ROW_PX - 1);
	put_colour(b, n->kind, hash_name(name));
	(void)buf_append_str(b, "\"/><text x=\"");
	put_centipx(b, left + PAD_PX * 100 + 300);
	(void)buf_printf(b, "\" y=\"%u\">", y + 12);
	put_label(b, name, width > 600 ? (width - 600) / CHAR_CENTIPX : 0);
	(void)buf_append_str(b, "</text></g>\n");
}

static void put_text(struct buf *b, const char *class, uint32_t x, uint32_t y, const char *text)
{
	(void)buf_printf(b, "<text class=\"%s\" x=\"%u\" y=\"%u\">", class, x, y);
	(void)str_append_xml(b, text);
	(void)buf_append_str(b, "</text>\n");
}

/* Foreign text such as a title: repaired, since only profiles guarantee that theirs is. */
static int put_foreign_text(
	struct buf *b, const char *class, uint32_t x, uint32_t y, const char *text)
{
	_cleanup_(buf_done) struct buf repaired = BUF_INIT(PROFILE_NAME_MAX);
	int r = str_append_utf8(&repaired, text, strlen(text), PROFILE_NAME_MAX);

	if (r == 0)
		put_text(b, class, x, y, buf_str(&repaired));
	return r;
}

static int put_head(struct buf *b, const struct drawing *d)
{
	const struct svg_options *o = d->options;
	uint32_t width = d->width_px;
	int r;

	(void)buf_printf(b,
		"<g class=\"head\">\n<rect width=\"%u\" height=\"%u\" fill=\"#fff\" "
		"opacity=\".93\"/>\n",
		width, HEAD_PX - 2);
	r = put_foreign_text(b, "title", width / 2, 22, o->title ? o->title : "Flame graph");
	if (r == 0 && o->subtitle)
		r = put_foreign_text(b, "subtitle", PAD_PX, 42, o->subtitle);
	/* Both need the script, which shows them. */
	(void)buf_printf(b,
		"<g class=\"reset\" style=\"display:none\" role=\"button\" aria-label=\"reset "
		"zoom\"><rect x=\"%u\" y=\"4\" width=\"88\" height=\"22\" rx=\"3\" fill=\"#eee\" "
		"stroke=\"#555\"/><text x=\"%u\" y=\"19\">reset zoom</text></g>\n",
		PAD_PX, PAD_PX + 8);
	(void)buf_printf(b,
		"<foreignObject class=\"box\" style=\"display:none\" x=\"%u\" y=\"4\" "
		"width=\"190\" "
		"height=\"24\"><input xmlns=\"http://www.w3.org/1999/xhtml\" class=\"search\" "
		"type=\"search\" placeholder=\"search: / or Ctrl-F\" aria-label=\"search in frame "
		"names\" spellcheck=\"false\" autocomplete=\"off\"/></foreignObject>\n",
		width - PAD_PX - 190);
	(void)buf_printf(b, "<text class=\"matched\" role=\"status\" x=\"%u\" y=\"60\"></text>\n",
		width - PAD_PX);
	(void)buf_printf(b, "<text class=\"details\" x=\"%u\" y=\"76\"></text>\n</g>\n", PAD_PX);
	return r;
}

static void put_legend(struct buf *b, const struct drawing *d, uint32_t y)
{
	uint32_t x = PAD_PX;

	for (uint32_t k = 0; k < FRAME_KIND_COUNT; k++) {
		if (!d->kinds[k])
			continue;
		(void)buf_printf(b,
			"<rect x=\"%u\" y=\"%u\" width=\"14\" height=\"12\" stroke=\"#555\" "
			"fill=\"",
			x, y - 10);
		put_colour(b, k, 128);
		(void)buf_append_str(b, "\"/>");
		put_text(b, "foot", x + 19, y, kind_colours[k].label);
		x += 19 + (uint32_t)strlen(kind_colours[k].label) * CHAR_CENTIPX / 100 + 18;
	}
}

static void put_foot(struct buf *b, const struct drawing *d, uint32_t y)
{
	size_t left_out = tree_count(d->tree) - d->box_count;

	put_legend(b, d, y + 20);
	(void)buf_printf(b, "<text class=\"foot\" x=\"%u\" y=\"%u\">total ", PAD_PX, y + 42);
	put_value(b, d, d->total);
	if (left_out)
		(void)buf_printf(
			b, "; %zu frames narrower than 0.3 px are not drawn or searched", left_out);
	(void)buf_append_str(b, "</text>\n");
}

static int put_drawing(struct buf *b, const struct drawing *d)
{
	uint32_t rows = d->box_count ? d->depth_max + 1 : 2;
	uint32_t height = HEAD_PX + rows * ROW_PX + FOOT_PX;
	int r;

	(void)buf_printf(b,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"flamelab\" width=\"%u\" "
		"height=\"%u\" viewBox=\"0 0 %u %u\" data-pad=\"%u\" data-inner=\"%u\" "
		"aria-label=\"flame graph\">\n",
		d->width_px, height, d->width_px, height, PAD_PX, d->inner_px);
	(void)buf_printf(b, "<style><![CDATA[\n%s]]></style>\n", svg_style);
	(void)buf_printf(
		b, "<rect width=\"%u\" height=\"%u\" fill=\"#fff\"/>\n", d->width_px, height);
	for (size_t i = 0; i < d->box_count && !buf_error(b); i++)
		put_box(b, d, &d->boxes[i]);
	if (d->box_count)
		put_foot(b, d, height - FOOT_PX);
	else
		put_text(b, "none", PAD_PX, HEAD_PX + ROW_PX, "no samples");
	/* After the frames, so that it covers them when it follows the scrolling. */
	r = put_head(b, d);
	(void)buf_printf(b, "<script><![CDATA[\n%s]]></script>\n</svg>\n", svg_script);
	return buf_error(b) ? buf_error(b) : r;
}

int svg_write(const struct profile *p, const struct svg_options *o, struct buf *out)
{
	uint32_t width = o->width_px ? o->width_px : WIDTH_DEFAULT_PX;
	struct drawing d = {.profile = p, .options = o};
	int r = 0;

	d.width_px = MIN(MAX(width, (uint32_t)WIDTH_MIN_PX), (uint32_t)WIDTH_MAX_PX);
	d.inner_px = d.width_px - 2 * PAD_PX;
	if (profile_type_count(p)) {
		r = tree_build(p, o->type, o->with_comm, &d.tree);
		if (r < 0)
			return r;
		d.total = tree_at(d.tree, 0)->total;
		if (d.total > 0)
			r = lay_out(&d);
	}
	if (r == 0)
		r = put_drawing(out, &d);
	free(d.boxes);
	tree_free(d.tree);
	return r;
}
