/*
 * Tokens. Only the SHA-256 of a token is stored: 32 random bytes need no slow hash. The server looks at
 * a copy in memory, read again when it is a second old, so that `token create` and `token revoke` by another
 * process take effect without a restart, and so that asking costs no disk.
 */
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "backend/control_internal.h"
#include "base/def.h"
#include "base/file.h"
#include "base/log.h"
#include "base/loop.h"

enum { TOKEN_BYTES = 32, TOKENS_MAX = 10000 };

static const char *const scope_names[SCOPE_COUNT] = {
	[SCOPE_NONE] = "none",
	[SCOPE_INGEST] = "ingest",
	[SCOPE_READ] = "read",
	[SCOPE_CONTROL] = "control",
	[SCOPE_ADMIN] = "admin",
};

const char *control_scope_name(enum http_scope scope)
{
	return scope < SCOPE_COUNT ? scope_names[scope] : "?";
}

bool control_scope_parse(const char *name, enum http_scope *ret)
{
	for (size_t i = SCOPE_INGEST; i < SCOPE_COUNT; i++)
		if (strcmp(scope_names[i], name) == 0) {
			*ret = (enum http_scope)i;
			return true;
		}
	return false;
}

bool control_scope_covers(enum http_scope held, enum http_scope wanted)
{
	return held > SCOPE_NONE && held < SCOPE_COUNT &&
	       (wanted == SCOPE_NONE || held == wanted || held == SCOPE_ADMIN);
}

static void base64url(const unsigned char *raw, size_t size, struct buf *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned int bits = 0;
	unsigned int count = 0;

	for (size_t i = 0; i < size; i++) {
		bits = bits << 8 | raw[i];
		for (count += 8; count >= 6; count -= 6)
			(void)buf_append_char(out, digits[bits >> (count - 6) & 63]);
	}
	if (count)
		(void)buf_append_char(out, digits[bits << (6 - count) & 63]);
}

int control_token_create(
	struct control *c, enum http_scope scope, const char *name, struct buf *ret)
{
	unsigned char raw[TOKEN_BYTES];
	char sha256[FILE_SHA256_HEX];
	_cleanup_(buf_done) struct buf text = BUF_INIT(2 * TOKEN_BYTES);
	int r;

	if (scope <= SCOPE_NONE || scope >= SCOPE_COUNT || !control_word(name, CONTROL_ID_MAX))
		return -EINVAL;
	if (gnutls_rnd(GNUTLS_RND_KEY, raw, sizeof(raw)) != 0)
		return -EIO;
	base64url(raw, sizeof(raw), &text);
	r = buf_error(&text);
	if (!r)
		r = file_sha256_mem(text.data, text.size, sha256);
	if (r)
		return r;
	pthread_mutex_lock(&c->lock);
	control_sync(c, true);
	r = control_run(c,
		"INSERT INTO ctl_tokens SELECT ?1, ?2, ?3, ?4"
		" WHERE NOT EXISTS (SELECT 1 FROM ctl_tokens WHERE name = ?1)",
		"titi", name, (int64_t)scope, sha256, (int64_t)time(NULL) * 1000);
	if (r == 0 && sqlite3_changes(c->db) == 0)
		r = -EEXIST;
	control_sync(c, false);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&c->token_lock);
	c->tokens_read_ns = 0;
	pthread_mutex_unlock(&c->token_lock);
	return r ? r : buf_append(ret, text.data, text.size);
}

int control_token_revoke(struct control *c, const char *name)
{
	int r;

	pthread_mutex_lock(&c->lock);
	control_sync(c, true); /* one that is revoked must not come back with the power */
	r = control_run(c, "DELETE FROM ctl_tokens WHERE name = ?1", "t", name);
	if (r == 0 && sqlite3_changes(c->db) == 0)
		r = -ENOENT;
	control_sync(c, false);
	pthread_mutex_unlock(&c->lock);
	pthread_mutex_lock(&c->token_lock);
	c->tokens_read_ns = 0;
	pthread_mutex_unlock(&c->token_lock);
	return r;
}

int control_token_list(struct control *c, struct buf *out)
{
	int r = 0;

	pthread_mutex_lock(&c->lock);
	{
		_cleanup_(control_reset) sqlite3_stmt *stmt = control_query(c, &r,
			"SELECT name, scope, strftime('%Y-%m-%dT%H:%M:%SZ', created_ms / 1000, "
			"'unixepoch')"
			" FROM ctl_tokens ORDER BY name",
			"");

		while (control_row(c, stmt, &r))
			(void)buf_printf(out, "%s %s %s\n", control_column(stmt, 0),
				control_scope_name((enum http_scope)sqlite3_column_int(stmt, 1)),
				control_column(stmt, 2));
	}
	pthread_mutex_unlock(&c->lock);
	return r ? r : buf_error(out);
}

/* Both locks are held. On an error the old tokens stay, which is logged. */
static int tokens_read(struct control *c)
{
	int r = 0;
	size_t count = 0;
	struct control_token *fresh = calloc(TOKENS_MAX, sizeof(*fresh));
	sqlite3_stmt *stmt;

	if (!fresh)
		return -ENOMEM;
	stmt = control_query(
		c, &r, "SELECT sha256, scope FROM ctl_tokens ORDER BY name LIMIT 10000", "");
	while (count < TOKENS_MAX && control_row(c, stmt, &r)) {
		(void)snprintf(fresh[count].sha256, sizeof(fresh[count].sha256), "%s",
			control_column(stmt, 0)); /* 64 digits */
		fresh[count++].scope = (enum http_scope)sqlite3_column_int(stmt, 1);
	}
	control_reset(&stmt);
	if (r) {
		free(fresh);
		return r;
	}
	free(c->tokens);
	c->tokens = fresh;
	c->token_count = count;
	return 0;
}

/* With token_lock: makes the copy at most a second old. It never waits for the database once it has one. */
static void tokens_refresh(struct control *c)
{
	uint64_t now_ns = loop_now_ns();
	int r;

	if (c->tokens_read_ns && now_ns - c->tokens_read_ns < NSEC_PER_SEC)
		return;
	if (!c->tokens_read_ns)
		pthread_mutex_lock(&c->lock);
	else if (pthread_mutex_trylock(&c->lock) != 0)
		return; /* a heartbeat is at work; the next request looks again */
	r = tokens_read(c);
	pthread_mutex_unlock(&c->lock);
	if (r)
		log_error("control", "read tokens", r, "%s", "");
	else
		c->tokens_read_ns = now_ns;
}

bool control_token_allows(struct control *c, const char *token, enum http_scope scope)
{
	char sha256[FILE_SHA256_HEX];
	bool allowed = false;

	if (!token || file_sha256_mem(token, strlen(token), sha256) != 0)
		return false;
	pthread_mutex_lock(&c->token_lock);
	tokens_refresh(c);
	/* A hash is compared, so that time tells nothing about the token. */
	for (size_t i = 0; i < c->token_count && !allowed; i++)
		allowed = strcmp(c->tokens[i].sha256, sha256) == 0 &&
			  control_scope_covers(c->tokens[i].scope, scope);
	pthread_mutex_unlock(&c->token_lock);
	return allowed;
}

bool control_has_tokens(struct control *c)
{
	bool has;

	pthread_mutex_lock(&c->token_lock);
	tokens_refresh(c);
	/* Without a copy nothing is known, so tokens are asked for. */
	has = c->token_count > 0 || !c->tokens;
	pthread_mutex_unlock(&c->token_lock);
	return has;
}
