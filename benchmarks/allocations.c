/* Counts the calls of aligned_alloc, with which compiled programs allocate; to be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

long aligned_alloc_calls;

void *aligned_alloc(size_t alignment, size_t size) {
    static void *(*real)(size_t, size_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "aligned_alloc");
    __atomic_add_fetch(&aligned_alloc_calls, 1, __ATOMIC_RELAXED);
    return real(alignment, size);
}
