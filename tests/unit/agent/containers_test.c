/* What runtimes say of containers, how it is kept, and which workload a pod is of. */
#include <criterion/criterion.h>
#include <errno.h>

#include "agent/containers_internal.h"
#include "base/def.h"
#include "base/file.h"
#include "prof/proto.h"

#define ID    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD   "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

Test(containers, a_pod_is_of_the_workload_whose_name_its_own_was_made_of)
{
	static const struct {
		struct container_pod pod;
		const char *workload;
	} cases[] = {
		{{.name = "x-1", .app = "shop", .template_hash = "x"}, "shop"},
		{{.name = "x-1", .app = ""}, "x-1"},
		{{.name = "web-5d4f8c7b9f-x2x4z", .template_hash = "5d4f8c7b9f"}, "web"},
		{{.name = "web-1-5d4f8c7b9f-x2x4z", .template_hash = "5d4f8c7b9f"}, "web-1"},
		/* Its hash is another one: somebody's own label. */
		{{.name = "web-5d4f8c7b9f-x2x4z", .template_hash = "77"}, "web-5d4f8c7b9f-x2x4z"},
		{{.name = "db-0", .stateful_name = "db-0", .revision = "db-5d4f"}, "db"},
		{{.name = "node-exporter-x2x4z", .revision = "5d4f8c7b9f"}, "node-exporter"},
		{{.name = "backup-28912345-x2x4z", .job = "backup-28912345"}, "backup"},
		{{.name = "import-x2x4z", .job = "import"}, "import"},
		{{.name = "import-2-x2x4z", .job = "import-2"}, "import-2"},
		{{.name = "kube-apiserver-n1.example", .is_static = true, .host = "n1.example"},
			"kube-apiserver"},
		{{.name = "kube-apiserver-n2", .is_static = true, .host = "n1"},
			"kube-apiserver-n2"},
		/* By their look. */
		{{.name = "web-5d4f8c7b9f-x2x4z"}, "web"}, {{.name = "exporter-x2x4z"}, "exporter"},
		{{.name = "my-nginx"}, "my-nginx"}, {{.name = "db-0"}, "db-0"},
		{{.name = "x2x4z"}, "x2x4z"}, {{.name = "-x2x4z"}, "-x2x4z"},
		{{.name = "a-bcdfgh-x2x4z"}, "a-bcdfgh"}, /* no digit: part of the name */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char workload[CONTAINER_TEXT_MAX + 1];
		struct container_pod pod = cases[i].pod;

		if (!pod.host)
			pod.host = "";
		container_workload(&pod, workload);
		cr_assert_str_eq(workload, cases[i].workload, "%s is %s", pod.name, workload);
	}
}

/* --- answers */

struct told {
	size_t count;
	char text[4096];
};

static void tell(const char *id, const struct container *c, void *data)
{
	struct told *t = data;
	size_t n = strlen(t->text);

	t->count++;
	(void)snprintf(t->text + n, sizeof(t->text) - n, "%.4s %s|%s|%s|%s|%s|%s\n", id,
		c->fields[CONTAINER_NAME], c->fields[CONTAINER_IMAGE], c->fields[CONTAINER_POD],
		c->fields[CONTAINER_NAMESPACE], c->fields[CONTAINER_WORKLOAD],
		c->fields[CONTAINER_PROJECT]);
}

static void put(struct buf *to, uint32_t field, struct buf *message)
{
	cr_assert_eq(proto_put_bytes(to, field, message->data, message->size), 0);
	buf_done(message);
}

static void put_pair(struct buf *to, uint32_t field, const char *key, const char *value)
{
	struct buf entry = BUF_INIT(4096);

	(void)proto_put_str(&entry, 1, key);
	(void)proto_put_str(&entry, 2, value);
	put(to, field, &entry);
}

static void put_pod(struct buf *to, const char *id, const char *name)
{
	struct buf pod = BUF_INIT(65536), metadata = BUF_INIT(4096);

	(void)proto_put_str(&pod, 1, id);
	(void)proto_put_str(&metadata, 1, name);
	(void)proto_put_str(&metadata, 2, "uid");
	(void)proto_put_str(&metadata, 3, "prod");
	put(&pod, 2, &metadata);
	put_pair(&pod, 5, "pod-template-hash", "5d4f8c7b9f");
	put_pair(&pod, 6, "kubernetes.io/config.source", "api");
	put(to, 1, &pod);
}

static void put_container(struct buf *to, const char *id, const char *pod, const char *wanted)
{
	struct buf c = BUF_INIT(65536), metadata = BUF_INIT(4096), image = BUF_INIT(4096);

	(void)proto_put_str(&c, 1, id);
	(void)proto_put_str(&c, 2, pod);
	(void)proto_put_str(&metadata, 1, "nginx");
	put(&c, 3, &metadata);
	(void)proto_put_str(&image, 1, "sha256:0011");
	(void)proto_put_str(&image, 18, wanted);
	put(&c, 4, &image);
	put(to, 1, &c);
}

static int read_cri(const struct buf *pods, const struct buf *list, struct told *ret)
{
	struct arena *a = arena_new(CONTAINERS_ARENA_MAX);
	int r = containers_read_cri(cursor_over(pods->data, pods->size),
		cursor_over(list->data, list->size), "host", a, tell, ret);

	arena_free(a);
	return r;
}

Test(containers, cri_containers_have_their_names_and_those_of_their_pods)
{
	struct buf pods = BUF_INIT(1 << 20), list = BUF_INIT(1 << 20);
	struct told told = {0};

	put_pod(&pods, POD, "web-5d4f8c7b9f-x2x4z");
	put_container(&list, ID, POD, "nginx:1.25");
	put_container(&list, OTHER, "no such pod", "");
	put_container(&list, "short", POD, "");
	cr_assert_eq(read_cri(&pods, &list, &told), 0);
	cr_assert_str_eq(told.text, "0011 pause||web-5d4f8c7b9f-x2x4z|prod|web|\n"
				    "0123 nginx|nginx:1.25|web-5d4f8c7b9f-x2x4z|prod|web|\n"
				    "fedc nginx|sha256:0011||||\n");
	buf_done(&pods);
	buf_done(&list);
}

Test(containers, a_cut_cri_answer_gives_what_stood_before_the_cut)
{
	struct buf pods = BUF_INIT(1 << 20), list = BUF_INIT(1 << 20);
	struct told told = {0};

	put_pod(&pods, POD, "web-5d4f8c7b9f-x2x4z");
	put_container(&list, ID, POD, "");
	put_container(&list, OTHER, POD, "");
	list.size -= 3;
	cr_assert_eq(read_cri(&pods, &list, &told), -EBADMSG);
	cr_assert_eq(told.count, 2, "%s", told.text);
	buf_done(&pods);
	buf_done(&list);
}

Test(containers, a_grpc_body_is_one_whole_message_that_is_not_compressed)
{
	struct cursor c;

	cr_assert(containers_grpc_message("\0\0\0\0\2ab", 7, &c));
	cr_assert_eq(cursor_left(&c), 2);
	cr_assert(containers_grpc_message("\0\0\0\0\0", 5, &c));
	cr_assert_not(containers_grpc_message("\1\0\0\0\2ab", 7, &c));
	cr_assert_not(containers_grpc_message("\0\0\0\0\3ab", 7, &c));
	cr_assert_not(containers_grpc_message("\0\377\377\377\377ab", 7, &c));
	cr_assert_not(containers_grpc_message("\0\0\0\0", 4, &c));
	cr_assert_not(containers_grpc_message(NULL, 0, &c));
}

Test(containers, docker_containers_have_compose_or_kubernetes_names)
{
	static const char json[] =
		"[{\"Id\":\"" ID "\",\"Names\":[\"/shop-web-1\",\"/x/y\"],\"Image\":\"nginx:1.25\","
		"\"Labels\":{\"com.docker.compose.project\":\"shop\","
		"\"com.docker.compose.service\":\"web\"}},"
		"{\"Id\":\"" OTHER "\",\"Names\":[\"/k8s_a\"],\"Labels\":{"
		"\"io.kubernetes.pod.name\":\"web-5d4f8c7b9f-x2x4z\","
		"\"io.kubernetes.pod.namespace\":\"prod\"}},"
		"{\"Id\":\"" POD "\",\"Names\":[],\"Labels\":null},"
		"{\"Id\":\"short\"},7]";
	struct arena *a = arena_new(CONTAINERS_ARENA_MAX);
	struct told told = {0};

	cr_assert_eq(containers_read_docker(json, strlen(json), a, tell, &told), 0);
	cr_assert_str_eq(told.text, "0123 shop-web-1|nginx:1.25|||web|shop\n"
				    "fedc k8s_a||web-5d4f8c7b9f-x2x4z|prod|web|\n"
				    "0011 |||||\n");
	cr_assert_eq(containers_read_docker("{}", 2, a, tell, &told), -EBADMSG);
	cr_assert_eq(containers_read_docker("[", 1, a, tell, &told), -EBADMSG);
	arena_free(a);
}

/* --- lines */

Test(containers, a_line_says_what_was_written_repaired_and_cut)
{
	char longest[1000];
	struct container c = {.fields = {"a\tb\n", "\xff", longest, "", "\xe2\x82\xac", "shop"}};
	struct buf out = BUF_INIT(65536);
	struct container_line l;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	cr_assert_eq(container_line_write(&out, ID, 12, &c), 0);
	cr_assert_eq(buf_str(&out)[out.size - 1], '\n');
	cr_assert(container_line_read(buf_str(&out), out.size - 1, &l));
	cr_assert_str_eq(l.id, ID);
	cr_assert_eq(l.time_s, 12);
	cr_assert_eq(l.fields[CONTAINER_POD].size, CONTAINER_TEXT_MAX);
	cr_assert_eq(l.fields[CONTAINER_NAMESPACE].size, 0);
	cr_assert_arr_eq(l.fields[CONTAINER_PROJECT].at, "shop", 4);
	buf_done(&out);
}

Test(containers, what_is_no_line_is_refused)
{
	static const char *const wrong[] = {
		"",
		"x",
		ID,
		ID "\t1",
		ID "\t1\t\t\t\t\t",
		ID "\t1\t\t\t\t\t\t\t",
		ID "\t\t\t\t\t\t\t",
		ID "\t-1\t\t\t\t\t\t",
		ID "\t9999999999999\t\t\t\t\t\t",
		ID "0\t1\t\t\t\t\t\t",
		ID "\t1\ta\x01\t\t\t\t\t",
		ID "\t1\t\xff\t\t\t\t\t",
	};
	struct container_line l;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		cr_assert_not(container_line_read(wrong[i], strlen(wrong[i]), &l), "%s", wrong[i]);
	cr_assert(container_line_read(ID "\t1\t\t\t\t\t\t", strlen(ID "\t1\t\t\t\t\t\t"), &l));
}

/* --- what is kept */

static struct containers *open_cache(struct loop *loop, const char *path)
{
	struct containers *c;

	cr_assert_eq(containers_new(
			     &(struct containers_options){
				     .loop = loop, .runtime = "auto", .cache_file = path},
			     &c),
		0);
	return c;
}

Test(containers, what_was_answered_is_known_for_an_hour_and_then_asked_for_anew)
{
	char path[] = "/tmp/containers-XXXXXX";
	int fd = mkstemp(path);
	struct buf text = BUF_INIT(65536);
	long long now = (long long)time(NULL);
	struct loop *loop;
	struct containers *c;
	struct container found;

	cr_assert_geq(fd, 0);
	(void)buf_printf(&text,
		CONTAINERS_MAGIC "\n%s\t%lld\tweb\t\t\t\tshop\t\n%s\t%lld\told\t\t\t\t\t\ngarbage\n"
				 "%s\t%lld\tfuture\t\t\t\t\t\n",
		ID, now - 3500, OTHER, now - 3700, POD, now + 3600);
	cr_assert_eq(file_write_all(fd, text.data, text.size), 0);
	cr_assert_eq(loop_new(&loop), 0);
	c = open_cache(loop, path);
	cr_assert(containers_find(c, ID, &found));
	cr_assert_str_eq(found.fields[CONTAINER_WORKLOAD], "shop");
	cr_assert_str_eq(found.fields[CONTAINER_POD], "");
	cr_assert_not(containers_find(c, OTHER, &found));
	cr_assert_not(containers_find(c, POD, &found));
	cr_assert_not(containers_find(c, "", &found));
	containers_free(c);
	loop_free(loop);
	buf_done(&text);
	(void)close(fd);
	(void)unlink(path);
}

Test(containers, a_cache_of_another_format_is_as_good_as_none)
{
	char path[] = "/tmp/containers-XXXXXX";
	int fd = mkstemp(path);
	static const char text[] = "flame-agent-containers/2\n" ID "\t1\tweb\t\t\t\t\t\n";
	struct loop *loop;
	struct containers *c;
	struct container found;

	cr_assert_eq(file_write_all(fd, text, strlen(text)), 0);
	cr_assert_eq(loop_new(&loop), 0);
	c = open_cache(loop, path);
	cr_assert_not(containers_find(c, ID, &found));
	containers_free(c);
	loop_free(loop);
	(void)close(fd);
	(void)unlink(path);
}

Test(containers, a_runtime_is_auto_off_or_a_path)
{
	struct buf why = BUF_INIT(1024);

	cr_assert(containers_runtime_is_good("auto", NULL));
	cr_assert(containers_runtime_is_good("off", NULL));
	cr_assert(containers_runtime_is_good("/run/x.sock", NULL));
	cr_assert_not(containers_runtime_is_good("", &why));
	cr_assert_not(containers_runtime_is_good("docker", &why));
	cr_assert(why.size > 0);
	buf_done(&why);
}
