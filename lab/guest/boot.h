/* What PID 1 does before the first step: modules, mounts, root, sysctls. */
#ifndef LAB_GUEST_BOOT_H
#define LAB_GUEST_BOOT_H

#include <stdbool.h>
#include <stddef.h>

/* Messages go to the console that boot_console() opened. */
void boot_console(void);
/*
 * Loads /modules/ in order of names, mounts the root from pmem and moves into it; the payload
 * stands at /payload then. Returns what failed, in words, or NULL.
 */
const char *boot_root(void);
/* The other pmem device, once boot_root() found the root. */
const char *boot_result_device(void);
/* Mounts the kernel's file systems in the new root and sets the sysctls that sampling needs. */
const char *boot_mounts(void);
/* The value of "NAME=VALUE" on the kernel command line, "" when it is not there. */
void boot_argument(const char *name, char *value, size_t size);
_Noreturn void boot_power_off(void);

#endif
