/* Calls `main` of the library `model` on arrays in files, and writes its results to files:
 *
 *     run OUT DTYPE,SIZE,SIZE...,FILE ...
 *
 * writes result i to OUT.i. */

#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static int fail(const char *text) {
    fprintf(stderr, "%s\n", text);
    return 1;
}

/* Reads DTYPE,SIZE...,FILE; the data is what the whole file holds. */
static int read_tensor(char *text, relaxlab_tensor *tensor) {
    tensor->dtype = (int32_t)strtol(text, &text, 10);
    tensor->ndim = 0;
    while (text[0] == ',' && text[1] >= '0' && text[1] <= '9')
        tensor->shape[tensor->ndim++] = strtoll(text + 1, &text, 10);
    FILE *file = fopen(text + 1, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return fail(text);
    size_t size = (size_t)ftell(file);
    rewind(file);
    tensor->data = malloc(size + 1);
    size_t read = fread(tensor->data, 1, size, file);
    fclose(file);
    return read == size ? 0 : fail(text);
}

static int write_tensor(const char *out, int number, const relaxlab_tensor *tensor) {
    static const size_t bytes[] = {
        [RELAXLAB_INT8] = 1, [RELAXLAB_INT32] = 4, [RELAXLAB_FLOAT32] = 4,
    };
    size_t size = bytes[tensor->dtype];
    for (int i = 0; i < tensor->ndim; i++) size *= (size_t)tensor->shape[i];
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", out, number);
    FILE *file = fopen(name, "wb");
    if (!file) return fail(name);
    size_t written = fwrite(tensor->data, 1, size, file);
    fclose(file);
    return written == size ? 0 : fail(name);
}

int main(int argc, char **argv) {
    relaxlab_tensor args[MODEL_MAIN_ARGS], results[MODEL_MAIN_RESULTS];
    if (argc != MODEL_MAIN_ARGS + 2) return fail("run OUT DTYPE,SIZE,SIZE...,FILE ...");
    for (int i = 0; i < MODEL_MAIN_ARGS; i++)
        if (read_tensor(argv[i + 2], &args[i])) return 1;
    model_context *context;
    if (model_open(NULL, &context)) return fail(model_error());
    if (model_main(context, args, MODEL_MAIN_ARGS, results, MODEL_MAIN_RESULTS))
        return fail(model_error());
    for (int i = 0; i < MODEL_MAIN_RESULTS; i++)
        if (write_tensor(argv[1], i, &results[i])) return 1;
    model_close(context);
    return 0;
}
