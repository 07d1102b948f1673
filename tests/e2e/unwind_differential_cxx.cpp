/* A target of unwind_differential.sh: libstdc++'s streams, regular expressions, locales, containers and exceptions,
 * with calls into the vdso. Runs until it is killed. */
#include <ctime>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>

static void turn(unsigned n, const std::regex &re)
{
	std::map<std::string, int> words;
	std::ostringstream out;
	for (int i = 0; i < 50; i++) {
		timespec t;
		clock_gettime(CLOCK_MONOTONIC, &t);
		out << "ab" << (unsigned(i) * n) % 97 << ' ' << 1.5 * i + double(t.tv_nsec & 1)
		    << ' ';
		words[out.str().substr(0, 5 + size_t(i) % 7)] = i;
	}
	std::istringstream in(out.str());
	std::string word;
	double number;
	while (in >> word >> number)
		words[word]++;
	word = std::regex_replace(out.str(), re, "$2$1");
	if (n % 2)
		throw std::runtime_error(word);
}

int main()
{
	const std::regex re("([a-z]+)([0-9]+)");
	for (unsigned n = 0;; n++) {
		try {
			turn(n, re);
		} catch (const std::exception &e) {
			if (!*e.what())
				return 1;
		}
	}
}
