/*
 * svg_draw <FOLDED >SVG: draws folded stacks, so that svg_script.sh has a flame graph whose content
 * it chose itself.
 */
#include "prof/svg.h"

#include "base/def.h"
#include "base/file.h"
#include "prof/folded.h"

int main(void)
{
	_cleanup_(buf_done) struct buf in = BUF_INIT(16 << 20);
	_cleanup_(buf_done) struct buf out = BUF_INIT(64 << 20);
	_cleanup_(profile_freep) struct profile *p = NULL;

	if (file_read_fd(0, &in) < 0 || folded_read(in.data, in.size, 64 << 20, NULL, &p) < 0)
		return 1;
	if (svg_write(p, &(struct svg_options){0}, &out) < 0)
		return 1;
	return file_write_all(1, out.data, out.size) < 0;
}
