/* @stem@.h: the C interface of @stem@.so, written by relaxlab for processors
 * like @cpu@.
 *
 * Every function that returns int returns RELAXLAB_OK or the kind of failure; @prefix@_error() then
 * has the message. A context is used by one call at a time; contexts are independent of each other.
 */
#ifndef RELAXLAB_@guard@_H
#define RELAXLAB_@guard@_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef RELAXLAB_TENSOR
#define RELAXLAB_TENSOR

#define RELAXLAB_MAX_NDIM @max_ndim@

enum relaxlab_dtype {
@dtypes@
};

enum relaxlab_status {
    RELAXLAB_OK = 0,
    RELAXLAB_ARGUMENT = 1, /* an argument does not fit the signature */
    RELAXLAB_CHECK = 2,    /* a claim of the program about its values does not hold */
    RELAXLAB_MEMORY = 3,   /* there is not enough memory */
    RELAXLAB_FILE = 4,     /* the parameter file is missing, damaged or another one */
    RELAXLAB_MACHINE = 5   /* this processor cannot run the code */
};

/* A dense array in row-major order. data: its first element, aligned to the size of an element.
 * dtype: an enum relaxlab_dtype; bool is a byte that is 0 or 1. Only the first ndim sizes of shape
 * count. A scalar is a tensor with ndim 0, a shape one of int64 with ndim 1. */
typedef struct relaxlab_tensor {
    void *data;
    int32_t dtype;
    int32_t ndim;
    int64_t shape[RELAXLAB_MAX_NDIM];
} relaxlab_tensor;

#endif

/* The mapped parameters, memory for temporaries, and the number of threads. */
typedef struct @prefix@_context @prefix@_context;

/* Make a context. params: the path of the parameter file; NULL: @stem@.params beside this library.
 * The file is mapped, not read; damage to its arrays is found by @prefix@_verify. */
int @prefix@_open(const char *params, @prefix@_context **context);

/* Free a context, with all results that were not released. */
void @prefix@_close(@prefix@_context *context);

/* Threads that a call uses, its own included. At first: OMP_NUM_THREADS, or all processors that
 * this process may use. */
int @prefix@_set_threads(@prefix@_context *context, int threads);

/* Read the parameters once and compare them with their checksums. */
int @prefix@_verify(@prefix@_context *context);

/* Give back the memory of a result and set its data to NULL. The memory of a result belongs to the
 * context until then. Results that are arguments or parameters may be released, too. */
void @prefix@_release(@prefix@_context *context, relaxlab_tensor *result);

/* What the last failed call of this thread has to say; never NULL. */
const char *@prefix@_error(void);

@functions@
#ifdef __cplusplus
}
#endif

#endif
