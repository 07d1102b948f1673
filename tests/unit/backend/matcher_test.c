/*
 * Selectors: what parses, what matches, what is refused.
 */
#include <criterion/criterion.h>
#include <errno.h>

#include "backend/store.h"
#include "base/def.h"

#define UNSUPPORTED "regular expression not supported: unbalanced, too large, or a back reference"

static const struct push_label labels[] = {
	{"__name__", "cpu"}, {"host", "h-1.example"}, {"service_name", "shop"}};

static bool takes(const char *text)
{
	struct matcher *m = calloc(MATCHERS_MAX, sizeof(*m));
	struct match_set *set = NULL;
	const char *why = "";
	size_t count = 0;
	bool does;

	cr_assert(m);
	cr_assert_eq(matcher_parse(text, &why, m, &count), 0, "%s: %s", text, why);
	cr_assert_eq(match_set_new(m, count, &set), 0);
	does = match_set_takes(set, labels, ARRAY_SIZE(labels), "cpu", "nanoseconds");
	match_set_free(set);
	free(m);
	return does;
}

static const char *refusal(const char *text)
{
	struct matcher *m = calloc(MATCHERS_MAX, sizeof(*m));
	const char *why = NULL;
	size_t count;

	cr_assert(m);
	cr_assert_eq(matcher_parse(text, &why, m, &count), -EINVAL, "%s", text);
	free(m);
	return why;
}

Test(matcher, operators_mean_what_they_mean_to_prometheus)
{
	cr_assert(takes(""));
	cr_assert(takes("{}"));
	cr_assert(takes("{service_name=\"shop\"}"));
	cr_assert(takes(" service_name = \"shop\" , host!=\"h2\", "));
	cr_assert(!takes("{service_name=\"shop\",host=\"h2\"}"));
	cr_assert(takes("{host=~\"h-.*\"}"));
	cr_assert(!takes("{host!~\"h-.*\"}"));
	cr_assert(takes("{host=~\"x|h-[0-9]\\\\.(?:example|test)\"}"));
	cr_assert(takes("{host=~\"h-\\\\d.*\"}"));
	cr_assert(takes("{__type__=\"cpu\",__unit__=\"nanoseconds\"}"));
}

Test(matcher, expressions_match_whole_values)
{
	cr_assert(!takes("{service_name=~\"ho\"}"));
	cr_assert(!takes("{service_name=~\"shop|x\", host=~\"h|1\"}"));
	cr_assert(takes("{service_name=~\"s|shop\"}"));
}

Test(matcher, an_absent_label_is_empty)
{
	cr_assert(takes("{zone=\"\"}"));
	cr_assert(takes("{zone!=\"a\"}"));
	cr_assert(!takes("{zone=\"a\"}"));
	cr_assert(takes("{zone=~\".*\"}"));
	cr_assert(!takes("{zone=~\".+\"}"));
}

Test(matcher, malformed_selectors_are_refused_with_a_reason)
{
	cr_assert_str_eq(refusal("{"), "expected a label name");
	cr_assert_str_eq(refusal("{a"), "expected =, !=, =~ or !~");
	cr_assert_str_eq(refusal("{a=b}"), "expected a value in double quotes");
	cr_assert_str_eq(refusal("{a=\"b}"), "value without its closing quote");
	cr_assert_str_eq(refusal("{a=\"b\" c=\"d\"}"), "expected a comma");
	cr_assert_str_eq(refusal("{a=\"b\"}x"), "text after the closing brace");
	cr_assert_str_eq(refusal("{a=\"\\q\"}"), "unknown escape in a value");
	cr_assert_str_eq(refusal("{a=~\"(\"}"), "not a valid regular expression");
	cr_assert_str_eq(refusal("{a=~\"x)|(y\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"[a\"}"), UNSUPPORTED);
}

/* The last one took 1.2 GB: each + copies what stands before it. */
Test(matcher, expressions_that_could_eat_the_server_are_refused)
{
	cr_assert_str_eq(refusal("{a=~\"(a)\\\\1\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"((a{1,99}){1,99}){1,99}\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"a{99999}\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"a+++++++++++++++++++++++++++++++++\"}"), UNSUPPORTED);
	cr_assert_str_eq(
		refusal("{a=~\"((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"+*+*++++x\"}"), UNSUPPORTED); /* took glibc minutes */
	cr_assert_str_eq(
		refusal("{a=~\"((((((((((((((a*)*)*)*)*)*)*)*)*)*)*)*)*)*)*\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"a{99}{99}{99}\"}"), UNSUPPORTED);
	cr_assert_str_eq(refusal("{a=~\"(|*a)\"}"), UNSUPPORTED);
	cr_assert(takes("{host=~\"h.*?\"}")); /* not greedy: the same texts */
	cr_assert(!takes("{a=~\"a{1,30}\"}"));
	cr_assert(takes("{host=~\"(h+-[0-9]+.[a-z]+)+\"}"));
}

Test(matcher, more_matchers_than_the_limit_are_refused)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(1 << 16);

	for (int i = 0; i <= MATCHERS_MAX; i++)
		(void)buf_printf(&text, "l%d!=\"x\",", i);
	cr_assert_str_eq(refusal(buf_str(&text)), "too many matchers");
}
