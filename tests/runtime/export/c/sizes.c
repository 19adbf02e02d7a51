/* Calls with several numbers of rows, on memory of just that size, for valgrind to watch. */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#ifndef MISSING
#define MISSING 0 /* rows of each argument that there is no memory for */
#endif

int main(void) {
    static const int sizes[] = {0, 1, 2, 3, 16, 17, 33, 100};
    model_context *context;
    if (model_open(NULL, &context)) {
        fprintf(stderr, "%s\n", model_error());
        return 1;
    }
    float *w = malloc(8 * 8 * sizeof *w);
    for (int i = 0; i < 8 * 8; i++) w[i] = (float)(i % 5) - 2;
    for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        int there = n > MISSING ? n - MISSING : 0;
        float *x = malloc(there * 8 * sizeof *x);
        for (int i = 0; i < there * 8; i++) x[i] = (float)(i % 7) - 3;
        relaxlab_tensor args[] = {
            {x, RELAXLAB_FLOAT32, 2, {n, 8}},
            {w, RELAXLAB_FLOAT32, 2, {8, 8}},
        };
        relaxlab_tensor results[MODEL_MAIN_RESULTS];
        if (model_main(context, args, MODEL_MAIN_ARGS, results, MODEL_MAIN_RESULTS)) {
            fprintf(stderr, "%s\n", model_error());
            return 1;
        }
        printf("%d", n);
        for (int r = 0; r < MODEL_MAIN_RESULTS; r++) {
            long count = 1;
            double sum = 0;
            for (int d = 0; d < results[r].ndim; d++) count *= results[r].shape[d];
            for (long i = 0; i < count; i++) sum += ((const float *)results[r].data)[i];
            printf(" %.3f", sum);
            model_release(context, &results[r]);
        }
        printf("\n");
        free(x);
    }
    free(w);
    model_close(context);
    return 0;
}
