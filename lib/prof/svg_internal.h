/*
 * What svg.c (layout, XML) puts into every drawing unchanged: svg_script.c.
 */
#ifndef PROF_SVG_INTERNAL_H
#define PROF_SVG_INTERNAL_H

extern const char svg_style[];
extern const char svg_script[];

#endif
