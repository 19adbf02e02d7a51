/* Read bandwidth and int8 dot product peak of this machine, by a C compiler.

   limits BYTES THREADS REPEATS

   Sums BYTES of integers with small and with large pages, without and with software prefetch; then,
   where the processor has vpdpbusd, multiplies bytes in registers. Prints one line per measurement:
   its name, then a value per repetition in bytes/s or multiply-adds/s. */
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
#define DOTS (1L << 21)
#define AHEAD 4096 /* words from the data in use to the data that is prefetched */

static pthread_barrier_t barrier;
static const int32_t *data;
static size_t words;
static int threads, repeats, prefetching;
static double (*times)[MAX_THREADS];
static volatile int32_t sink[MAX_THREADS * 16];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* The compiler vectorises this; eight sums hide the latency of the additions. */
static inline int32_t sum(const int32_t *x, size_t n, int prefetch) {
    int32_t acc[8][16] = {{0}};
    for (size_t i = 0; i + 128 <= n; i += 128) {
        if (prefetch)
            for (int u = 0; u < 8; u++) __builtin_prefetch(x + i + AHEAD + 16 * u, 0, 2);
        for (int u = 0; u < 8; u++)
            for (int v = 0; v < 16; v++) acc[u][v] += x[i + 16 * u + v];
    }
    int32_t all = 0;
    for (int u = 0; u < 8; u++)
        for (int v = 0; v < 16; v++) all += acc[u][v];
    return all;
}

static void *read_all(void *arg) {
    size_t me = (size_t)arg, part = words / threads / 128 * 128;
    for (int r = 0; r < repeats; r++) {
        pthread_barrier_wait(&barrier);
        double start = now();
        const int32_t *mine = data + me * part;
        sink[16 * me] = prefetching ? sum(mine, part, 1) : sum(mine, part, 0);
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
        for (long i = 0; i < DOTS; i++)
            for (int u = 0; u < 16; u++) acc[u] = _mm512_dpbusd_epi32(acc[u], a, b);
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

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    threads = atoi(argv[2]);
    repeats = atoi(argv[3]);
    if (threads < 1 || threads > MAX_THREADS || repeats < 1) return 2;
    words = bytes / 4;
    times = malloc(repeats * sizeof *times);
    pthread_barrier_init(&barrier, NULL, threads);
    for (int large = 0; large < 2; large++) {
        void *memory = mmap(NULL, bytes + (4 << 20), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return 1;
        char *start = (char *)(((uintptr_t)memory + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
        madvise(start, bytes, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        memset(start, 1, bytes);
        data = (const int32_t *)start;
        double amount = (double)(words / threads / 128 * 128 * 4 * threads);
        prefetching = 0;
        run(large ? "c_large_pages" : "c_small_pages", read_all, amount);
        prefetching = 1;
        run(large ? "c_large_pages_prefetch" : "c_small_pages_prefetch", read_all, amount);
        munmap(memory, bytes + (4 << 20));
    }
#if defined(__AVX512VNNI__)
    run("int8_dot", dot_all, 64.0 * 16 * DOTS * threads);
#endif
    return 0;
}
