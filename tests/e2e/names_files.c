/*
 * A program of names_files.sh: burns CPU in NAME_outer -> NAME_hot, without frame pointers, and says when it is done.
 * Built once for each name; the same code under another name is what the agent must not take it for.
 *
 * Descriptors: 3, and for the second round 5, give a byte to each program when all may begin; 4 takes "up" and "done".
 *
 *	-DPART=0	everything (default)	1: the two functions, as a library	2: the program that uses it
 *	-DWHERE=FLAGS	the two functions in a section of their own with these flags
 *	-DLOST		instead of NAME_outer a function that has no caller calls NAME_hot
 *	-DPART=3	the program, which calls NAME_outer at offset CODE of the file PACK, mapped from offset PACK_START on
 *	-DREMAP=1..3	first moves to memory of its own: the page of the functions; all of the text; and 3: puts
 *			generated code in the place of the text of filler(), which nobody calls
 *	PROGRAM COMM [once]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef PART
#define PART 0
#endif
#define JOIN2(a, b) a##_##b
#define JOIN(a, b)  JOIN2(a, b)
#define N(x)        JOIN(NAME, x)

#ifdef WHERE /* the comment sign hides the flags that gcc adds */
#define PLACE __attribute__((section(".text_apart,\"" WHERE "\",@progbits#")))
#else
#define PLACE
#endif

PLACE unsigned long N(outer)(unsigned long n);

#if PART < 2
PLACE __attribute__((noinline)) static unsigned long N(hot)(unsigned long n)
{
	volatile unsigned long pad[PAD];

	for (unsigned long i = 0; i < PAD; i++)
		pad[i] = i;
	for (unsigned long i = 0; i < n; i++)
		pad[i % PAD] += i;
	return pad[n % PAD];
}

PLACE __attribute__((noinline)) unsigned long N(outer)(unsigned long n)
{
	volatile unsigned long pad[3 * PAD];

	pad[n % PAD] = N(hot)(n);
	return pad[n % PAD] + 1;
}
#endif

#if PART != 1
static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void say(const char *text)
{
	if (write(4, text, strlen(text)) < 0)
		_exit(1);
}

#ifdef LOST
/* Calls N(hot)(n) in a frame whose caller is at an address where nothing is mapped; no rule says otherwise. */
void lost(unsigned long n, unsigned long (*hot)(unsigned long));
__asm__(".text\n.type lost, @function\nlost:\n"
	"push %rbx\npush %rbp\nmov %rsp, %rbx\n"
	"push $0x10000\npush $0\nmov %rsp, %rbp\n"
	"sub $8, %rsp\ncall *%rsi\n"
	"mov %rbx, %rsp\npop %rbp\npop %rbx\nret\n.size lost, . - lost\n");
#define CALL(n) lost(n, N(hot))
#else
#define CALL(n) N(outer)(n)
#endif

#if PART == 3
static unsigned long (*packed)(unsigned long);
#undef CALL
#define CALL(n) packed(n)

static void unpack(void)
{
	size_t start = strtoul(getenv("PACK_START"), NULL, 0);
	int fd = open(getenv("PACK"), O_RDONLY);
	off_t size = lseek(fd, 0, SEEK_END) - (off_t)start;
	char *at = mmap(NULL, (size_t)size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)start);

	if (at == MAP_FAILED)
		_exit(2);
	close(fd);
	packed = (unsigned long (*)(unsigned long))(void *)(at + strtoul(getenv("CODE"), NULL, 16));
}
#endif

#ifdef REMAP
enum { PAGE = 4096 };

static int text_of(struct dl_phdr_info *info, size_t size, void *data)
{
	uintptr_t *text = data;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		text[0] = (info->dlpi_addr + p->p_vaddr) & ~(uintptr_t)(PAGE - 1);
		text[1] = (info->dlpi_addr + p->p_vaddr + p->p_memsz + PAGE - 1) &
			  ~(uintptr_t)(PAGE - 1);
	}
	return 1; /* the first one is the program */
}

/* What is at start, in anonymous memory at the same place. */
static void move(uintptr_t start, uintptr_t end)
{
	size_t size = end - start;
	void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(copy, (void *)start, size);
	if (mprotect(copy, size, PROT_READ | PROT_EXEC) < 0 ||
		mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) ==
			MAP_FAILED)
		_exit(2);
}

#if REMAP == 3
void filler(void);
__asm__(".text\n.balign 4096\n.type filler, @function\nfiller:\n"
	".rept 1024\n.byte 0xb8\n.long . - filler\n.byte 0x31, 0xc0, 0xc3\n.endr\n.size filler, . "
	"- filler\n");
static unsigned long (*generated)(unsigned long);
#undef CALL
#define CALL(n) generated(n)
#endif

static void remap(void)
{
	uintptr_t text[2] = {0};

#if REMAP == 1
	text[0] = (uintptr_t)N(outer) & ~(uintptr_t)(PAGE - 1);
	text[1] = text[0] + PAGE;
#elif REMAP == 2
	dl_iterate_phdr(text_of, text);
#else
	void *place = mmap((void *)filler, PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (place != (void *)filler)
		_exit(2);
	for (size_t i = 0; i < PAGE; i += 256)
		memcpy((char *)place + i, (void *)N(hot), 256);
	if (mprotect(place, PAGE, PROT_READ | PROT_EXEC) < 0)
		_exit(2);
	generated = (unsigned long (*)(unsigned long))(void *)((char *)place + 1024);
	return;
#endif
	(void)text_of;
	move(text[0], text[1]);
}
#endif

/* One round: waits for a byte of descriptor fd. */
__attribute__((noinline, noclone)) static void work(int fd, double seconds)
{
	double end;
	char c;

	if (read(fd, &c, 1) != 1)
		_exit(1);
	end = cpu_now() + seconds;
	while (cpu_now() < end)
		CALL(400000);
	say("done\n");
}

int main(int argc, char **argv)
{
	prctl(PR_SET_NAME, argc > 1 ? argv[1] : "nobody");
#ifdef REMAP
	remap();
#endif
#if PART == 3
	unpack();
#endif
	say("up\n");
	work(3, 0.3);
	if (argc > 2)
		return 0;
	work(5, 0.3);
	for (;;)
		pause();
}
#endif
