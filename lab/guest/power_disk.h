/*
 * Block devices for power cuts, without losetup, dmsetup and mount: modules, loop devices on files of a
 * tmpfs, and a dm-log-writes device. The module files and an empty ext4 lie in POWER_DIR of the image's root.
 */
#ifndef LAB_GUEST_POWER_DISK_H
#define LAB_GUEST_POWER_DISK_H

#include <stdint.h>

#define POWER_DIR   "/usr/lib/flamelab"
#define POWER_EMPTY POWER_DIR "/empty.ext4"

/* All of these: 0 or -errno. */
int power_modules_load(void);
/* A file of size bytes, all of it a hole. */
int power_file_make(const char *path, uint64_t size);
/* Copies what is not a hole. */
int power_file_copy(const char *from, const char *to);
/* /dev/loopNUMBER is that file. */
int power_loop_attach(unsigned int number, const char *path);
int power_loop_detach(unsigned int number);
/* /dev/dm-0: reads and writes device, logs all writes to log. */
int power_dm_create(const char *device, const char *log, uint64_t device_bytes);
int power_dm_mark(const char *text);
/* Returns when the log is whole. */
int power_dm_remove(void);

#endif
