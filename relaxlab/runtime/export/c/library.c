/* The part of an exported library that is the same for every program: contexts, checks of
 * arguments, memory of results. The tables describe the program. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#endif

#include "@stem@.h"

#define API(name) @prefix@_##name

typedef int64_t entry_function(void *context, int64_t threads);

enum { TENSOR, SHAPE, SCALAR };
enum { GIVEN = -1, FIXED = -2 };

/* An argument or result. source: GIVEN by the caller, FIXED (its words are in `words`), or the
 * number of a stored array. dims: the constant sizes, -1 for others; NULL: none are. */
struct leaf {
    const char *name, *type;
    int8_t kind, dtype, ndim, written;
    int32_t source;
    const int64_t *dims, *words;
};

struct function {
    const char *name, *signature; /* the names of the parameters that are given */
    entry_function *entry;
    const struct leaf *args, *results;
    int n_args, n_given, n_results, words_in, words_out;
};

/* What a failed check says: one message per dimension. */
struct check {
    const char *const *messages;
    int memory;
};

/* What the code needs of the processor: a bit that cpuid reports. */
struct feature {
    const char *name;
    uint32_t leaf, subleaf;
    int reg, bit;
};

@tables@

typedef struct API(context) context;

struct span {
    const char *start, *end;
    int arg;
};

struct API(context) {
    int64_t words[CONTEXT_WORDS];
    int64_t constants[N_CONSTANTS + 1];
    int64_t arenas[2 * N_ARENAS + 1];
    int64_t *in[N_FUNCTIONS]; /* per function its argument block, stored parameters filled in */
    int64_t *out;
    struct span *spans;
    struct block *held; /* the memory of results */
    const char *params;
    size_t params_size;
    int threads;
    int busy;
};

/* A block that the program allocated; the data follow BLOCK_HEADER bytes after its start. */
struct block {
    struct block *next;
    int64_t size;
    int64_t users; /* results that lie in it */
};

/* -- messages ---------------------------------------------------------------------------------- */

static _Thread_local char last_error[4096];

struct text {
    size_t at;
};

/* Append to the message; what does not fit is cut off. */
static void add(struct text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(last_error + t->at, sizeof last_error - t->at, format, args);
    va_end(args);
    if (n > 0) t->at += (size_t)n;
    if (t->at >= sizeof last_error) t->at = sizeof last_error - 1;
}

static int fail(int status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}

/* Append sizes as Python writes a tuple. */
static void add_shape(struct text *t, const int64_t *shape, int ndim) {
    add(t, "(");
    for (int i = 0; i < ndim; i++) add(t, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    add(t, ndim == 1 ? ",)" : ")");
}

/* Start a message about an argument. */
static struct text about(const struct function *f, const struct leaf *leaf) {
    struct text t = {0};
    add(&t, "argument `%s` of `%s` ", leaf->name, f->name);
    return t;
}

/* Fill in a message's {got} and {expected}; {{ and }} stand for braces. */
static void add_template(struct text *t, const char *s, int64_t got, int64_t expected) {
    for (; *s; s++) {
        if (strncmp(s, "{got}", 5) == 0) {
            add(t, "%" PRId64, got);
            s += 4;
        } else if (strncmp(s, "{expected}", 10) == 0) {
            add(t, "%" PRId64, expected);
            s += 9;
        } else {
            add(t, "%c", *s);
            if ((*s == '{' || *s == '}') && s[1] == *s) s++;
        }
    }
}

const char *API(error)(void) { return last_error; }

/* -- the parameter file ------------------------------------------------------------------------ */

struct header {
    char magic[8];
    uint32_t version, count;
    uint64_t size;
    uint32_t crc;
    char rest[36];
};

struct array {
    char name[128];
    int32_t dtype, ndim;
    int64_t shape[RELAXLAB_MAX_NDIM];
    uint64_t offset, bytes;
    uint32_t crc, rest;
};

/* CRC-32 as in zlib, PNG and Ethernet. */
static uint32_t crc32_of(const void *data, uint64_t bytes) {
    uint32_t table[256], crc = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        table[i] = c;
    }
    const uint8_t *p = data;
    for (uint64_t i = 0; i < bytes; i++) crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static const struct array *stored(const context *c, int number) {
    return (const struct array *)(c->params + sizeof(struct header)) + number;
}

/* The path of the parameter file beside this library; NULL when there is no telling. The caller
 * frees it. */
static char *params_path(void) {
    Dl_info info;
    if (!dladdr((void *)API(open), &info) || !info.dli_fname) return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    size_t folder = slash ? (size_t)(slash - info.dli_fname) + 1 : 0;
    char *path = malloc(folder + sizeof PARAMS_NAME);
    if (!path) return NULL;
    memcpy(path, info.dli_fname, folder);
    memcpy(path + folder, PARAMS_NAME, sizeof PARAMS_NAME);
    return path;
}

static int check_params(const context *c, const char *path) {
    const struct header *h = (const struct header *)c->params;
    uint64_t entries = (uint64_t)N_STORED * sizeof(struct array);
    if (memcmp(h->magic, "RLPARAMS", 8) || h->version != 1)
        return fail(RELAXLAB_FILE, "%s is not a parameter file of version 1", path);
    if (h->size != c->params_size)
        return fail(RELAXLAB_FILE, "%s has %zu bytes instead of %" PRIu64 ": it was cut off", path,
                    c->params_size, h->size);
    if (h->count != N_STORED || h->crc != PARAMS_CRC)
        return fail(RELAXLAB_FILE,
                    "%s does not belong to this library; copy the one exported with it", path);
    if (sizeof *h + entries > h->size || crc32_of(h + 1, entries) != h->crc)
        return fail(RELAXLAB_FILE, "%s is damaged: the checksum of its entries does not match",
                    path);
    return RELAXLAB_OK;
}

static int map_params(context *c, const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0 || fstat(file, &facts)) {
        int status = fail(RELAXLAB_FILE, "cannot read %s: %s", path, strerror(errno));
        if (file >= 0) close(file);
        return status;
    }
    size_t size = (size_t)facts.st_size;
    if (size < sizeof(struct header)) {
        close(file);
        return fail(RELAXLAB_FILE, "%s is too short to be a parameter file", path);
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    int error = errno;
    close(file);
    if (data == MAP_FAILED) return fail(RELAXLAB_FILE, "cannot map %s: %s", path, strerror(error));
    c->params = data;
    c->params_size = size;
    return check_params(c, path);
}

int API(verify)(context *c) {
    for (int i = 0; i < N_STORED; i++) {
        const struct array *a = stored(c, i);
        if (crc32_of(c->params + a->offset, a->bytes) != a->crc)
            return fail(RELAXLAB_FILE,
                        "the parameter file is damaged: the checksum of `%.128s` does not match",
                        a->name);
    }
    return RELAXLAB_OK;
}

#if CALLS_BLAS
/* Each thread of a call computes its share with a BLAS that uses one. */
extern void scipy_openblas_set_num_threads64_(int count);
__attribute__((constructor)) static void use_one_blas_thread(void) {
    scipy_openblas_set_num_threads64_(1);
}
#endif

/* -- contexts ---------------------------------------------------------------------------------- */

static int default_threads(void) {
    const char *asked = getenv("OMP_NUM_THREADS");
    int count = asked ? atoi(asked) : 0;
    if (count > 0) return count;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Write the words of the parameters that the caller does not give. */
static void fill_stored(context *c, const struct function *f, int64_t *words) {
    for (int i = 0; i < f->n_args; i++) {
        const struct leaf *leaf = &f->args[i];
        int count = leaf->kind == TENSOR ? 1 + leaf->ndim : leaf->kind == SHAPE ? leaf->ndim : 1;
        if (leaf->source == FIXED && count) memcpy(words, leaf->words, (size_t)count * sizeof *words);
        if (leaf->source >= 0) {
            const struct array *a = stored(c, leaf->source);
            words[0] = (int64_t)(intptr_t)(c->params + a->offset);
            memcpy(words + 1, a->shape, (size_t)leaf->ndim * sizeof *words);
        }
        words += count;
    }
}

static int fill_context(context *c) {
    int most_args = 0, most_out = 0;
    for (int i = 0; i < N_CONSTANTS; i++)
        c->constants[i] = (int64_t)(intptr_t)(c->params + stored(c, i)->offset);
    for (int i = 0; i < N_FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        c->in[i] = calloc((size_t)f->words_in + 1, sizeof(int64_t));
        if (!c->in[i]) return fail(RELAXLAB_MEMORY, "not enough memory for a context");
        fill_stored(c, f, c->in[i]);
        if (f->n_args > most_args) most_args = f->n_args;
        if (f->words_out > most_out) most_out = f->words_out;
    }
    c->out = calloc((size_t)most_out + 1, sizeof(int64_t));
    c->spans = calloc((size_t)most_args + 1, sizeof(struct span));
    if (!c->out || !c->spans) return fail(RELAXLAB_MEMORY, "not enough memory for a context");
    c->words[CONTEXT_constants] = (int64_t)(intptr_t)c->constants;
    c->words[CONTEXT_arenas] = (int64_t)(intptr_t)c->arenas;
    c->words[CONTEXT_min_work] = MIN_TEAM_WORK;
    c->words[CONTEXT_out] = (int64_t)(intptr_t)c->out;
    return RELAXLAB_OK;
}

/* A feature that the code needs and this machine lacks; NULL if there is none. */
static const char *missing_feature(void) {
#ifdef __x86_64__
    uint32_t r[4] = {0};
    for (const struct feature *f = features; f->name; f++)
        if (!__get_cpuid_count(f->leaf, f->subleaf, &r[0], &r[1], &r[2], &r[3]) ||
            !(r[f->reg] >> f->bit & 1))
            return f->name;
    if (NEEDED_STATE) {
        uint32_t low, high; /* the registers that the operating system saves */
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & NEEDED_STATE) != NEEDED_STATE) return "wide registers";
    }
    /* Linux wants to be asked before a process uses matrix tiles, whose state is large. */
    if (NEEDS_TILES && syscall(SYS_arch_prctl, 0x1023, 18)) return "matrix tiles";
#endif
    return NULL;
}

static int open_context(context *c, const char *path) {
    const char *missing = missing_feature();
    if (missing)
        return fail(RELAXLAB_MACHINE,
                    "this library is for processors like %s; this one lacks %s", CPU, missing);
    c->threads = default_threads();
    if (N_STORED) {
        char *own = path ? NULL : params_path();
        if (!path && !own) return fail(RELAXLAB_FILE, "cannot tell where this library is; "
                                                      "pass the path of " PARAMS_NAME);
        int status = map_params(c, path ? path : own);
        free(own);
        if (status) return status;
    }
    return fill_context(c);
}

int API(open)(const char *params, context **result) {
    *result = NULL;
    context *c = calloc(1, sizeof *c);
    if (!c) return fail(RELAXLAB_MEMORY, "not enough memory for a context");
    int status = open_context(c, params);
    if (status)
        API(close)(c);
    else
        *result = c;
    return status;
}

static void free_blocks(struct block *b) {
    while (b) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
}

void API(close)(context *c) {
    if (!c) return;
    free_blocks(c->held);
    for (int i = 0; i < N_ARENAS; i++) free((void *)(intptr_t)c->arenas[2 * i]);
    for (int i = 0; i < N_FUNCTIONS; i++) free(c->in[i]);
    free(c->out);
    free(c->spans);
    if (c->params) munmap((void *)c->params, c->params_size);
    free(c);
}

int API(set_threads)(context *c, int threads) {
    if (threads < 1) return fail(RELAXLAB_ARGUMENT, "threads must be at least 1, got %d", threads);
    c->threads = threads;
    return RELAXLAB_OK;
}

/* -- arguments --------------------------------------------------------------------------------- */

static int check_tensor(const struct function *f, const struct leaf *leaf,
                        const relaxlab_tensor *t) {
    struct text m = about(f, leaf);
    if (t->dtype != leaf->dtype) {
        int known = t->dtype >= 0 && t->dtype < N_DTYPES;
        add(&m, "has dtype %s, expected %s", known ? dtype_names[t->dtype] : "of no known number",
            leaf->type);
        return RELAXLAB_ARGUMENT;
    }
    if (t->ndim != leaf->ndim) {
        add(&m, "has %d dimensions", t->ndim);
        if (t->ndim >= 0 && t->ndim <= RELAXLAB_MAX_NDIM) {
            add(&m, " ");
            add_shape(&m, t->shape, t->ndim);
        }
        add(&m, ", expected %s", leaf->type);
        return RELAXLAB_ARGUMENT;
    }
    int64_t count = 1;
    int fits = 1, sizes = 1;
    for (int i = 0; i < t->ndim; i++) {
        sizes &= t->shape[i] >= 0;
        fits &= !leaf->dims || leaf->dims[i] == -1 || leaf->dims[i] == t->shape[i];
        if (sizes) sizes = !__builtin_mul_overflow(count, t->shape[i], &count);
    }
    int64_t bytes;
    if (!sizes || __builtin_mul_overflow(count, (int64_t)dtype_bytes[t->dtype], &bytes)) {
        add(&m, "has shape ");
        add_shape(&m, t->shape, t->ndim);
        add(&m, ", which is no shape of an array");
        return RELAXLAB_ARGUMENT;
    }
    if (!fits) {
        add(&m, "has shape ");
        add_shape(&m, t->shape, t->ndim);
        add(&m, ", expected %s", leaf->type);
        return RELAXLAB_ARGUMENT;
    }
    if (!t->data && count) {
        add(&m, "has no data");
        return RELAXLAB_ARGUMENT;
    }
    if ((uintptr_t)t->data % dtype_bytes[t->dtype]) {
        add(&m, "starts in the middle of an element (address %p, elements of %d bytes)", t->data,
            dtype_bytes[t->dtype]);
        return RELAXLAB_ARGUMENT;
    }
    return RELAXLAB_OK;
}

/* A shape or scalar comes as a small tensor. */
static int check_small(const struct function *f, const struct leaf *leaf,
                       const relaxlab_tensor *t) {
    int shape = leaf->kind == SHAPE;
    if (t->dtype == leaf->dtype && t->ndim == shape && t->data &&
        (!shape || t->shape[0] == leaf->ndim)) {
        const int64_t *sizes = t->data;
        for (int i = 0; shape && i < leaf->ndim; i++) {
            if (sizes[i] >= 0) continue;
            struct text m = about(f, leaf);
            add(&m, "must be a shape; %" PRId64 " is no size", sizes[i]);
            return RELAXLAB_ARGUMENT;
        }
        return RELAXLAB_OK;
    }
    struct text m = about(f, leaf);
    if (shape)
        add(&m, "must be a shape of %d integers: an int64 tensor of shape (%d,)", leaf->ndim,
            leaf->ndim);
    else
        add(&m, "must be a scalar: a tensor of dtype %s with 0 dimensions",
            dtype_names[leaf->dtype]);
    return RELAXLAB_ARGUMENT;
}

/* Write an argument's words. Tensors are added to the spans. */
static int fill(context *c, const struct function *f, int number, const relaxlab_tensor *t,
                int64_t *words, int *n_spans) {
    const struct leaf *leaf = &f->args[number];
    int status = leaf->kind == TENSOR ? check_tensor(f, leaf, t) : check_small(f, leaf, t);
    if (status) return status;
    if (leaf->kind == SHAPE) {
        memcpy(words, t->data, (size_t)leaf->ndim * sizeof *words);
        return RELAXLAB_OK;
    }
    if (leaf->kind == SCALAR) {
        *words = 0;
        memcpy(words, t->data, dtype_bytes[leaf->dtype]);
        return RELAXLAB_OK;
    }
    int64_t bytes = dtype_bytes[t->dtype];
    words[0] = (int64_t)(intptr_t)t->data;
    for (int i = 0; i < t->ndim; i++) {
        words[1 + i] = t->shape[i];
        bytes *= t->shape[i];
    }
    if (bytes) c->spans[(*n_spans)++] = (struct span){t->data, (char *)t->data + bytes, number};
    return RELAXLAB_OK;
}

static int by_start(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int share(const struct function *f, int a, int b) {
    int first = a < b ? a : b, second = a < b ? b : a;
    return fail(RELAXLAB_ARGUMENT,
                "arguments `%s` and `%s` of `%s` share memory, and one of them is updated in "
                "place; pass a copy",
                f->args[first].name, f->args[second].name, f->name);
}

/* Nothing updated in place shares memory with another argument or with the parameters. */
static int check_apart(const context *c, const struct function *f, int n) {
    struct span any = {0}, written = {0};
    qsort(c->spans, (size_t)n, sizeof *c->spans, by_start);
    for (int i = 0; i < n; i++) {
        const struct span *s = &c->spans[i];
        int writes = f->args[s->arg].written;
        if (writes && c->params && s->start < c->params + c->params_size && s->end > c->params)
            return fail(RELAXLAB_ARGUMENT,
                        "argument `%s` of `%s` is updated in place but is read-only; pass a copy",
                        f->args[s->arg].name, f->name);
        const struct span *before = writes ? &any : &written;
        if (s->start < before->end) return share(f, before->arg, s->arg);
        if (s->end > any.end) any = *s;
        if (writes && s->end > written.end) written = *s;
    }
    return RELAXLAB_OK;
}

static int fill_args(context *c, const struct function *f, const relaxlab_tensor *args) {
    int64_t *words = c->in[f - functions];
    int n_spans = 0, writes = 0;
    for (int i = 0; i < f->n_given; i++) {
        const struct leaf *leaf = &f->args[i];
        int status = fill(c, f, i, &args[i], words, &n_spans);
        if (status) return status;
        words += leaf->kind == TENSOR ? 1 + leaf->ndim : leaf->kind == SHAPE ? leaf->ndim : 1;
        writes |= leaf->written;
    }
    return writes ? check_apart(c, f, n_spans) : RELAXLAB_OK;
}

/* -- results ----------------------------------------------------------------------------------- */

static struct block *block_of(struct block *b, const void *data) {
    for (; b; b = b->next) {
        const char *start = (const char *)b + BLOCK_HEADER, *p = data;
        if (start <= p && p < start + (b->size ? b->size : 1)) return b;
    }
    return NULL;
}

/* Room for a result that is a shape or a scalar. */
static void *new_block(context *c, int64_t size) {
    struct block *b = aligned_alloc(64, BLOCK_HEADER + 64 * ((size_t)size / 64 + 1));
    if (!b) return NULL;
    *b = (struct block){c->held, size, 1};
    c->held = b;
    return (char *)b + BLOCK_HEADER;
}

static int take_result(context *c, const struct leaf *leaf, const int64_t *words,
                       struct block *fresh, relaxlab_tensor *result) {
    relaxlab_tensor t = {.dtype = leaf->dtype, .ndim = leaf->ndim};
    if (leaf->kind == TENSOR) {
        t.data = (void *)(intptr_t)words[0];
        memcpy(t.shape, words + 1, (size_t)leaf->ndim * sizeof *words);
        struct block *b = block_of(fresh, t.data);
        if (!b) b = block_of(c->held, t.data);
        if (b) b->users++;
    } else {
        int64_t size = leaf->kind == SHAPE ? 8 * (int64_t)leaf->ndim : dtype_bytes[leaf->dtype];
        t.ndim = leaf->kind == SHAPE;
        t.shape[0] = leaf->kind == SHAPE ? leaf->ndim : 0;
        t.data = new_block(c, size);
        if (!t.data) return fail(RELAXLAB_MEMORY, "not enough memory for a result");
        memcpy(t.data, words, (size_t)size);
    }
    *result = t;
    return RELAXLAB_OK;
}

static int take_results(context *c, const struct function *f, relaxlab_tensor *results) {
    struct block *fresh = (struct block *)(intptr_t)c->words[CONTEXT_owned];
    c->words[CONTEXT_owned] = 0;
    for (struct block *b = fresh; b; b = b->next) b->users = 0;
    const int64_t *words = c->out;
    int status = RELAXLAB_OK, taken = 0;
    for (; taken < f->n_results && !status; taken++) {
        const struct leaf *leaf = &f->results[taken];
        status = take_result(c, leaf, words, fresh, &results[taken]);
        words += leaf->kind == TENSOR ? 1 + leaf->ndim : leaf->kind == SHAPE ? leaf->ndim : 1;
    }
    while (fresh) {
        struct block *b = fresh;
        fresh = b->next;
        if (b->users) {
            b->next = c->held;
            c->held = b;
        } else {
            free(b);
        }
    }
    for (int i = 0; status && i < taken - 1; i++) API(release)(c, &results[i]);
    return status;
}

void API(release)(context *c, relaxlab_tensor *result) {
    struct block *b = block_of(c->held, result->data);
    result->data = NULL;
    if (!b || --b->users) return;
    struct block **link = &c->held;
    while (*link != b) link = &(*link)->next;
    *link = b->next;
    free(b);
}

/* -- calls ------------------------------------------------------------------------------------- */

static int failed(context *c, int64_t code) {
    free_blocks((struct block *)(intptr_t)c->words[CONTEXT_owned]);
    c->words[CONTEXT_owned] = c->words[CONTEXT_kernel_failed] = 0;
    const struct check *check = &checks[code - 1];
    struct text m = {0};
    last_error[0] = 0;
    add_template(&m, check->messages[c->words[CONTEXT_axis]], c->words[CONTEXT_got],
                 c->words[CONTEXT_expected]);
    return check->memory ? RELAXLAB_MEMORY : RELAXLAB_CHECK;
}

static int run(context *c, const struct function *f, const relaxlab_tensor *args,
               relaxlab_tensor *results) {
    int status = fill_args(c, f, args);
    if (status) return status;
    c->words[CONTEXT_args] = (int64_t)(intptr_t)c->in[f - functions];
    int64_t code = f->entry(c->words, c->threads);
    return code ? failed(c, code) : take_results(c, f, results);
}

static int call(context *c, const struct function *f, const relaxlab_tensor *args, int n_args,
                relaxlab_tensor *results, int n_results) {
    if (n_args != f->n_given)
        return fail(RELAXLAB_ARGUMENT, "`%s` takes %d arguments (%s), got %d", f->name, f->n_given,
                    f->signature, n_args);
    if (n_results != f->n_results)
        return fail(RELAXLAB_ARGUMENT, "`%s` has %d results, there is room for %d", f->name,
                    f->n_results, n_results);
    if (__atomic_exchange_n(&c->busy, 1, __ATOMIC_ACQUIRE))
        return fail(RELAXLAB_ARGUMENT,
                    "`%s` was called while another call used its context; open a context per "
                    "thread",
                    f->name);
    int status = run(c, f, args, results);
    __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
    return status;
}

/* -- what relaxlab.load asks for ---------------------------------------------------------------- */

const char *relaxlab_description(void) { return description; }

entry_function *relaxlab_entry(int number) { return functions[number].entry; }

/* -- the functions of the program -------------------------------------------------------------- */

@functions@
