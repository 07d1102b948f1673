/*
 * What dict.c (writer), dict_read.c (reader and check) share: the tables' names.
 */
#ifndef BACKEND_DICT_INTERNAL_H
#define BACKEND_DICT_INTERNAL_H

#include "backend/dict.h"

extern const char dict_schema[];
extern const char *const dict_tables[DICT_KIND_COUNT];

#endif
