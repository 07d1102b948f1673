/*
 * The page: three files of backend/web, in the program as they stand there. They need no token: they say
 * nothing, the data they show is fetched with one.
 *
 * The page shows flame graphs in a sandboxed frame from a blob: URL, which inherits the page's policy. The
 * drawing's own script and style are therefore allowed by their hash, and nothing else that is inline.
 */
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>

#include "backend/api.h"
#include "base/def.h"
#include "prof/svg_internal.h"

/* The assembler reads the files, so they stay files that a browser opens. */
#define PAGE_FILE(symbol, path)                                                     \
	__asm__(".section .rodata\n"                                                \
		".global " #symbol "\n" #symbol ":\n.incbin \"" path "\"\n"         \
		".global " #symbol "_end\n" #symbol "_end:\n.byte 0\n.previous\n"); \
	extern const char symbol[], symbol##_end[]

PAGE_FILE(page_html, "backend/web/page.html");
PAGE_FILE(page_script, "backend/web/page.js");
PAGE_FILE(page_style, "backend/web/page.css");

enum { PAGE_MAX_BYTES = 1 << 20, POLICY_MAX = 1024 };

struct policies {
	char page[POLICY_MAX];
	char svg[POLICY_MAX];
};

/* 'sha256-BASE64' of "\n" and text, as svg.c writes both: Content Security Policy 3, section 2.3.1. */
static void hash_source(const char *text, char out[80])
{
	unsigned char hash[32];
	_cleanup_(buf_done) struct buf whole = BUF_INIT(PAGE_MAX_BYTES);
	gnutls_datum_t raw = {hash, sizeof(hash)};
	gnutls_datum_t base64 = {NULL, 0};

	(void)buf_printf(&whole, "\n%s", text);
	out[0] = '\0';
	if (buf_error(&whole) ||
		gnutls_hash_fast(GNUTLS_DIG_SHA256, whole.data, whole.size, hash) != 0 ||
		gnutls_base64_encode2(&raw, &base64) != 0)
		return; /* the drawing is shown without its script */
	(void)snprintf(
		out, 80, "'sha256-%.*s'", (int)base64.size, (const char *)base64.data); /* 53 */
	gnutls_free(base64.data);
}

static struct policies made;
static pthread_once_t made_once = PTHREAD_ONCE_INIT;

static void policies_make(void)
{
	char script[80];
	char style[80];

	hash_source(svg_script, script);
	hash_source(svg_style, style);
	(void)snprintf(made.page, sizeof(made.page),
		"default-src 'none'; script-src 'self' %s; style-src 'self' %s; style-src-attr "
		"'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; frame-src 'self' "
		"blob:; "
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		script, style);
	(void)snprintf(made.svg, sizeof(made.svg),
		"default-src 'none'; script-src %s; style-src %s; style-src-attr 'unsafe-inline'; "
		"frame-ancestors 'none'; sandbox allow-scripts",
		script, style);
}

const char *api_page_svg_policy(void)
{
	(void)pthread_once(&made_once, policies_make); /* cannot fail with a constant control */
	return made.svg;
}

static void page_file(struct http_response *r, const char *type, const char *from, const char *end)
{
	(void)pthread_once(&made_once, policies_make); /* as above */
	r->body = BUF_INIT(PAGE_MAX_BYTES);
	(void)buf_append(&r->body, from, (size_t)(end - from)); /* the server checks the buffer */
	r->status = 200;
	r->content_type = type;
	r->policy = made.page;
}

void api_page(void *app, struct http_request *q, struct http_response *r)
{
	(void)app;
	(void)q;
	page_file(r, "text/html; charset=utf-8", page_html, page_html_end);
}

void api_page_script(void *app, struct http_request *q, struct http_response *r)
{
	(void)app;
	(void)q;
	page_file(r, "text/javascript; charset=utf-8", page_script, page_script_end);
}

void api_page_style(void *app, struct http_request *q, struct http_response *r)
{
	(void)app;
	(void)q;
	page_file(r, "text/css; charset=utf-8", page_style, page_style_end);
}
