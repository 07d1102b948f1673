/*
 * Runs a fuzz target over stored inputs without libFuzzer: each argument is a file, or a directory
 * whose files are taken in sorted order. A replay of nothing fails, since it would prove nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPLAY_INPUT_MAX (64L * 1024 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_failed(const char *path, int error)
{
	(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(error));
	return -error;
}

/* The input stands in memory of exactly its size, so that ASan sees a read past its end. */
static int replay_file(const char *path, off_t size)
{
	uint8_t *data = size > 0 && size <= REPLAY_INPUT_MAX ? malloc((size_t)size) : NULL;
	FILE *f;
	size_t n;

	if (size > 0 && !data)
		return replay_failed(path, size > REPLAY_INPUT_MAX ? EFBIG : ENOMEM);
	f = fopen(path, "rbe");
	if (!f) {
		free(data);
		return replay_failed(path, errno);
	}
	n = size > 0 ? fread(data, 1, (size_t)size, f) : 0;
	(void)fclose(f); /* only read from */
	if (n != (size_t)size) {
		free(data);
		return replay_failed(path, EIO);
	}
	(void)LLVMFuzzerTestOneInput(data, n); /* its value is reserved to libFuzzer */
	free(data);
	return 0;
}

static int replay_path(const char *path, unsigned long *count);

static int replay_dir(const char *path, unsigned long *count)
{
	struct dirent **names = NULL;
	int n = scandir(path, &names, NULL, alphasort);
	int r = 0;

	if (n < 0)
		return replay_failed(path, errno);
	for (int i = 0; i < n; i++) {
		char *child = NULL;

		if (r == 0 && names[i]->d_name[0] != '.') {
			if (asprintf(&child, "%s/%s", path, names[i]->d_name) < 0)
				r = replay_failed(path, ENOMEM);
			else
				r = replay_path(child, count);
			free(child);
		}
		free(names[i]);
	}
	free(names);
	return r;
}

static int replay_path(const char *path, unsigned long *count)
{
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return replay_failed(path, errno);
	if (S_ISDIR(st.st_mode))
		return replay_dir(path, count);
	r = replay_file(path, st.st_size);
	if (r == 0)
		++*count;
	return r;
}

int main(int argc, char **argv)
{
	unsigned long count = 0;

	for (int i = 1; i < argc; i++) {
		if (replay_path(argv[i], &count) < 0)
			return 1;
	}
	if (count == 0) {
		(void)fprintf(stderr, "replay: no input at all\n");
		return 1;
	}
	printf("replayed %lu inputs\n", count);
	return 0;
}
