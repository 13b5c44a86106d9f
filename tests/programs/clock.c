/* Preloaded into a program of llama.cpp: a clock of our own around its calls into libllama, as
 * lines `name began ended` in nanoseconds, to the file that FLEET_CLOCK names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static FILE *out;

static long long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC_RAW, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void note(const char *name, long long began, long long ended)
{
    if (!out && (out = fopen(getenv("FLEET_CLOCK"), "w")))
        setvbuf(out, NULL, _IOFBF, 1 << 20);
    if (out)
        fprintf(out, "%s %lld %lld\n", name, began, ended);
}

#define AROUND(name)                                                            \
    long name(long a, long b, long c, long d, long e, long f)                   \
    {                                                                           \
        static long (*real)(long, long, long, long, long, long);                \
        if (!real)                                                              \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                          \
        long long began = now();                                                \
        long got = real(a, b, c, d, e, f);                                      \
        note(#name, began, now());                                              \
        return got;                                                             \
    }

AROUND(llama_process)
AROUND(llama_synchronize)
