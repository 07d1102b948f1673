/* See truth.h. The reader is one pass over the document in the order of the schema. */
#include "lab/truth.h"

#include <errno.h>

#include "base/def.h"

static const uint64_t truth_ns_max = 1ULL << 53;

static uint64_t truth_ns(const struct json_at *parent, const char *name)
{
	struct json_at at = json_need(parent, name);

	return json_u64(&at, 0, 0, truth_ns_max);
}

/* The object of waits by reason, summed. */
static uint64_t truth_waits(const struct json_at *parent)
{
	struct json_at at = json_need(parent, "wait_ns"), field;
	const char *name;
	uint64_t sum = 0;
	size_t i = 0;

	if (!json_open_object(&at))
		return 0;
	while (i < 64 && json_next_field(&at, &i, &field, &name))
		sum += json_u64(&field, 0, 0, truth_ns_max);
	return sum;
}

/* Which of the callers the compiler put into the next one that it did not. */
static void truth_read_inlined(const struct json_at *function, struct truth_function *f)
{
	struct json_at at = json_field(function, "inlined"), item;
	size_t n = json_array(&at, 0, TRUTH_CALLERS_MAX);

	for (size_t i = 0; i < n; i++) {
		const char *name;
		bool found = false;

		item = json_item(&at, i);
		name = json_text(&item, "", 1, 512);
		for (size_t k = 0; k < f->caller_count; k++)
			if (strcmp(f->callers[k], name) == 0)
				f->inlined[k] = found = true;
		if (!found)
			json_fail(&item, "\"%.100s\" is none of the callers", name);
	}
	if (f->caller_count && f->inlined[f->caller_count - 1])
		json_fail(&at, "the outermost caller has a frame");
}

static void truth_read_function(const struct json_at *at, struct truth_function *f)
{
	static const char *const names[] = {
		"name", "callers", "inlined", "cpu_ns", "wall_ns", "count", "wait_ns", NULL};
	struct json_at field, item;

	if (!json_object(at, names))
		return;
	field = json_need(at, "name");
	f->name = json_text(&field, "", 1, 512);
	field = json_need(at, "callers");
	f->caller_count = json_array(&field, 0, TRUTH_CALLERS_MAX);
	for (size_t i = 0; i < f->caller_count; i++) {
		item = json_item(&field, i);
		f->callers[i] = json_text(&item, "", 1, 512);
	}
	truth_read_inlined(at, f);
	f->cpu_ns = truth_ns(at, "cpu_ns");
	f->wall_ns = truth_ns(at, "wall_ns");
	f->count = truth_ns(at, "count");
	f->wait_ns = truth_waits(at);
}

static void truth_read_thread(const struct json_at *at, struct truth_thread *t)
{
	static const char *const names[] = {
		"tid", "name", "cpu_ns", "run_delay_ns", "slices", "alive", NULL};
	struct json_at field;

	if (!json_object(at, names))
		return;
	field = json_need(at, "tid");
	t->tid = (uint32_t)json_u64(&field, 0, 1, UINT32_MAX);
	field = json_need(at, "name");
	t->name = json_text(&field, "", 0, 512);
	t->cpu_ns = truth_ns(at, "cpu_ns");
	t->run_delay_ns = truth_ns(at, "run_delay_ns");
	t->slices = truth_ns(at, "slices");
	field = json_field(at, "alive");
	t->is_alive = json_bool(&field, false);
}

static void truth_read_head(const struct json_at *root, struct truth *t)
{
	static const char *const names[] = {"schema", "workload", "argv", "pid", "seed", "checksum",
		"wall_ns", "cpu_ns", "functions", "threads", "wait_ns", NULL};
	static const char *const schemas[] = {"flame-truth/1", NULL};
	struct json_at field, item;
	size_t n;

	if (!json_object(root, names))
		return;
	field = json_need(root, "schema");
	(void)json_choice(&field, 0, schemas); /* only the failure counts */
	field = json_need(root, "workload");
	t->workload = json_text(&field, "", 1, 128);
	field = json_need(root, "argv");
	n = json_array(&field, 0, 256);
	for (size_t i = 0; i < n; i++) {
		item = json_item(&field, i);
		(void)json_text(&item, "", 0, 4096); /* checked, not kept */
	}
	field = json_need(root, "pid");
	t->pid = (uint32_t)json_u64(&field, 0, 1, UINT32_MAX);
	field = json_need(root, "seed");
	(void)json_u64(&field, 0, 0, truth_ns_max); /* checked, not kept */
	field = json_need(root, "checksum");
	t->checksum = json_text(&field, "", 1, 128);
	t->wall_ns = truth_ns(root, "wall_ns");
	t->cpu_ns = truth_ns(root, "cpu_ns");
	t->wait_ns = truth_waits(root);
}

static int truth_read_body(const struct json_at *root, struct truth *t)
{
	struct json_at functions = json_need(root, "functions"), item;
	struct json_at threads = json_need(root, "threads");
	size_t n = json_array(&functions, 0, TRUTH_FUNCTIONS_MAX);

	t->functions = calloc(n + 1, sizeof(*t->functions));
	if (!t->functions)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		item = json_item(&functions, i);
		truth_read_function(&item, &t->functions[i]);
	}
	t->function_count = n;
	n = json_array(&threads, 0, TRUTH_THREADS_MAX);
	t->threads = calloc(n + 1, sizeof(*t->threads));
	if (!t->threads)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		item = json_item(&threads, i);
		truth_read_thread(&item, &t->threads[i]);
	}
	t->thread_count = n;
	return 0;
}

/* What a document says about itself must agree: parts are no larger than their whole. */
static void truth_check(const struct json_at *root, const struct truth *t)
{
	uint64_t process = MAX(truth_process_cpu_ns(t), t->cpu_ns); /* children are in the latter */
	struct json_at at = json_field(root, "functions");

	for (size_t i = 0; i < t->function_count && process; i++)
		if (t->functions[i].cpu_ns > process) {
			json_fail(&at, "\"%.100s\" has more CPU than the whole process",
				t->functions[i].name);
			return;
		}
}

static int truth_finish(struct truth *t)
{
	struct json_at root = json_root(&t->doc);
	int r;

	truth_read_head(&root, t);
	r = truth_read_body(&root, t);
	if (r < 0) {
		json_fail(&root, "%s", strerror(-r));
		return r;
	}
	truth_check(&root, t);
	return json_failed(&t->doc) ? -EBADMSG : 0;
}

int truth_parse(struct truth *t, const char *file, const void *data, size_t size)
{
	int r;

	*t = (struct truth){0};
	r = json_parse(&t->doc, file, data, size);
	return r < 0 ? r : truth_finish(t);
}

int truth_load(struct truth *t, const char *path)
{
	int r;

	*t = (struct truth){0};
	r = json_load(&t->doc, path);
	return r < 0 ? r : truth_finish(t);
}

void truth_done(struct truth *t)
{
	if (!t)
		return;
	json_done(&t->doc);
	free(t->functions);
	free(t->threads);
	*t = (struct truth){0};
}

uint64_t truth_process_cpu_ns(const struct truth *t)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->thread_count; i++)
		sum += t->threads[i].cpu_ns;
	return sum ? sum : t->cpu_ns;
}

/* CPU of a function under all of its callers. */
static uint64_t truth_name_cpu_ns(const struct truth *t, const char *name)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->function_count; i++)
		if (strcmp(t->functions[i].name, name) == 0)
			sum += t->functions[i].cpu_ns;
	return sum;
}

uint64_t truth_falsify(struct truth *t, double points)
{
	uint64_t move = (uint64_t)((double)truth_process_cpu_ns(t) * points / 100.0);
	uint64_t most = 0, all = 0, taken = 0;
	const char *largest = "";

	for (size_t i = 0; i < t->function_count; i++) {
		uint64_t sum = truth_name_cpu_ns(t, t->functions[i].name);

		all += t->functions[i].cpu_ns;
		if (sum > most) {
			most = sum;
			largest = t->functions[i].name;
		}
	}
	if (all == most || most < move)
		return 0;
	for (size_t i = 0; i < t->function_count; i++) {
		struct truth_function *f = &t->functions[i];
		double cpu = (double)f->cpu_ns;

		if (strcmp(f->name, largest) == 0) {
			uint64_t part = (uint64_t)((double)move * (cpu / (double)most));

			f->cpu_ns -= MIN(part, f->cpu_ns);
			taken += part;
		} else {
			f->cpu_ns += (uint64_t)((double)move * (cpu / (double)(all - most)));
		}
	}
	return taken;
}
