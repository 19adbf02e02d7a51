/* What this machine can do at most, by a C compiler.

   limits BYTES THREADS REPEATS WHAT...

   WHAT: `read` sums BYTES of integers with small and with large pages, without software prefetch
   and with it into the second or the first level; `copy` copies BYTES from one array in large pages
   to another, by memcpy, by plain and by non-temporal stores, and by `rep movsb`; `dot` multiplies bytes in registers where the processor has vpdpbusd;
   `fma` multiplies and adds floats in the widest vectors. Prints one line per measurement: its
   name, then a value per repetition, in bytes/s (copies count what is read and what is written) or
   multiply-adds/s. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_THREADS 256
#define STEPS (1L << 21)
#define AHEAD 4096 /* words from the data in use to what is prefetched; a quarter into level 1 */
#define PAGE ((size_t)2 << 20)
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define CHAINS 12 /* independent sums: latency times throughput, in registers of every width */

typedef float vector __attribute__((vector_size(4 * LANES), may_alias));
enum copying { MEMCPY, PLAIN, STREAM, STRING };
enum fetching { NOT, SECOND_LEVEL, FIRST_LEVEL };

static pthread_barrier_t barrier;
static const int32_t *data;
static int32_t *target;
static size_t words;
static int threads, repeats;
static enum fetching fetching;
static enum copying way;
static double (*times)[MAX_THREADS];
static volatile int32_t sink[MAX_THREADS * 16];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* The compiler vectorises this; eight sums hide the latency of the additions. */
static inline int32_t sum(const int32_t *x, size_t n, enum fetching into) {
    int32_t acc[8][16] = {{0}};
    for (size_t i = 0; i + 128 <= n; i += 128) {
        for (int u = 0; u < 8; u++) {
            if (into == SECOND_LEVEL) __builtin_prefetch(x + i + AHEAD + 16 * u, 0, 2);
            if (into == FIRST_LEVEL) __builtin_prefetch(x + i + AHEAD / 4 + 16 * u, 0, 3);
        }
        for (int u = 0; u < 8; u++)
            for (int v = 0; v < 16; v++) acc[u][v] += x[i + 16 * u + v];
    }
    int32_t all = 0;
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 16; v++) all += acc[u][v];
    return all;
}

static void copy(int32_t *to, const int32_t *from, size_t n) {
    vector *t = (vector *)to;
    const vector *f = (const vector *)from;
    size_t count = n / LANES;
    if (way == MEMCPY) {
        memcpy(to, from, 4 * n);
    } else if (way == PLAIN) {
        for (size_t i = 0; i < count; i++) {
            t[i] = f[i];
            __asm__ volatile("" ::: "memory"); /* or it becomes a call of memcpy */
        }
    } else if (way == STRING) {
        n *= 4;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
    } else {
        for (size_t i = 0; i < count; i++) {
#if LANES == 16
            _mm512_stream_ps((float *)(t + i), (__m512)f[i]);
#elif LANES == 8
            _mm256_stream_ps((float *)(t + i), (__m256)f[i]);
#else
            _mm_stream_ps((float *)(t + i), (__m128)f[i]);
#endif
        }
        _mm_sfence();
    }
}

static void *read_all(void *arg) {
    size_t me = (size_t)arg, part = words / threads / 128 * 128;
    for (int r = 0; r < repeats; r++) {
        pthread_barrier_wait(&barrier);
        double start = now();
        const int32_t *mine = data + me * part;
        sink[16 * me] = fetching == NOT            ? sum(mine, part, NOT)
                        : fetching == SECOND_LEVEL ? sum(mine, part, SECOND_LEVEL)
                                                   : sum(mine, part, FIRST_LEVEL);
        pthread_barrier_wait(&barrier);
        times[r][me] = now() - start;
    }
    return NULL;
}

static void *copy_all(void *arg) {
    size_t me = (size_t)arg, part = words / threads / 128 * 128;
    for (int r = 0; r < repeats; r++) {
        pthread_barrier_wait(&barrier);
        double start = now();
        copy(target + me * part, data + me * part, part);
        pthread_barrier_wait(&barrier);
        times[r][me] = now() - start;
    }
    return NULL;
}

static void *fma_all(void *arg) {
    size_t me = (size_t)arg;
    for (int r = 0; r < repeats; r++) {
        vector acc[CHAINS], a, b;
        for (int v = 0; v < LANES; v++) a[v] = 0.5f, b[v] = (float)(me + v);
        __asm__ volatile("" : "+x"(a), "+x"(b));
        for (int u = 0; u < CHAINS; u++) {
            acc[u] = b;
            __asm__ volatile("" : "+x"(acc[u])); /* so that no two chains are known to be equal */
        }
        pthread_barrier_wait(&barrier);
        double start = now();
        for (long i = 0; i < STEPS; i++)
            for (int u = 0; u < CHAINS; u++) acc[u] = acc[u] * a + b;
        for (int u = 0; u < CHAINS; u++) __asm__ volatile("" : "+x"(acc[u]));
        pthread_barrier_wait(&barrier);
        times[r][me] = now() - start;
    }
    return NULL;
}

#if defined(__AVX512VNNI__)
static void *dot_all(void *arg) {
    size_t me = (size_t)arg;
    for (int r = 0; r < repeats; r++) {
        __m512i acc[16], a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(1);
        for (int u = 0; u < 16; u++) acc[u] = _mm512_set1_epi32(u);
        pthread_barrier_wait(&barrier);
        double start = now();
        for (long i = 0; i < STEPS; i++)
            for (int u = 0; u < 16; u++) { /* kept by name, or GCC copies all sums each step */
                acc[u] = _mm512_dpbusd_epi32(acc[u], a, b);
                __asm__ volatile("" : "+v"(acc[u]));
            }
        pthread_barrier_wait(&barrier);
        times[r][me] = now() - start;
        for (int u = 0; u < 16; u++) sink[16 * me] += _mm512_reduce_add_epi32(acc[u]);
    }
    return NULL;
}
#endif

static void run(const char *name, void *(*body)(void *), double amount) {
    pthread_t handles[MAX_THREADS];
    for (size_t t = 0; t < (size_t)threads; t++) pthread_create(&handles[t], NULL, body, (void *)t);
    for (int t = 0; t < threads; t++) pthread_join(handles[t], NULL);
    printf("%s", name);
    for (int r = 0; r < repeats; r++) {
        double longest = 0;
        for (int t = 0; t < threads; t++) longest = times[r][t] > longest ? times[r][t] : longest;
        printf(" %.6g", amount / longest);
    }
    printf("\n");
}

/* BYTES of ones that begin a large page, in pages of the given kind; never freed. */
static void *memory(size_t bytes, int large) {
    void *start = mmap(NULL, bytes + 2 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) exit(1);
    start = (void *)(((uintptr_t)start + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    madvise(start, bytes, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return memset(start, 1, bytes);
}

static double moved(void) { return (double)(words / threads / 128 * 128 * 4 * threads); }

static void measure_read(void) {
    static const char *const names[][3] = {
        {"c_small_pages", "c_small_pages_prefetch", "c_small_pages_prefetch_l1"},
        {"c_large_pages", "c_large_pages_prefetch", "c_large_pages_prefetch_l1"}};
    for (int large = 0; large < 2; large++) {
        data = memory(4 * words, large);
        for (fetching = NOT; fetching <= FIRST_LEVEL; fetching++)
            run(names[large][fetching], read_all, moved());
        munmap((void *)data, 4 * words);
    }
}

static void measure_copy(void) {
    static const char *const names[] = {"copy_memcpy", "copy_plain", "copy_stream", "copy_string"};
    data = memory(4 * words, 1);
    target = memory(4 * words, 1);
    for (way = MEMCPY; way <= STRING; way++) run(names[way], copy_all, 2 * moved());
    munmap((void *)data, 4 * words);
    munmap(target, 4 * words);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    words = strtoull(argv[1], NULL, 10) / 4;
    threads = atoi(argv[2]);
    repeats = atoi(argv[3]);
    if (threads < 1 || threads > MAX_THREADS || repeats < 1) return 2;
    times = malloc(repeats * sizeof *times);
    pthread_barrier_init(&barrier, NULL, threads);
    for (char **what = argv + 4; *what; what++) {
        if (!strcmp(*what, "read")) {
            measure_read();
        } else if (!strcmp(*what, "copy")) {
            measure_copy();
        } else if (!strcmp(*what, "fma")) {
            run("fma", fma_all, (double)LANES * CHAINS * STEPS * threads);
        } else if (!strcmp(*what, "dot")) {
#if defined(__AVX512VNNI__)
            run("int8_dot", dot_all, 64.0 * 16 * STEPS * threads);
#endif
        } else {
            return 2;
        }
    }
    return 0;
}
