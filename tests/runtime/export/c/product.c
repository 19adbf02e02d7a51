/* A product of ones, by a library that calls BLAS. */

#include <stdio.h>

#include "model.h"

int main(void) {
    model_context *context;
    if (model_open(NULL, &context)) {
        fprintf(stderr, "%s\n", model_error());
        return 1;
    }
    static float x[40 * 64], w[64 * 48];
    for (int i = 0; i < 40 * 64; i++) x[i] = 1;
    for (int i = 0; i < 64 * 48; i++) w[i] = (float)(i % 48);
    relaxlab_tensor args[] = {
        {x, RELAXLAB_FLOAT32, 2, {40, 64}},
        {w, RELAXLAB_FLOAT32, 2, {64, 48}},
    };
    relaxlab_tensor result;
    for (int threads = 1; threads < 4; threads++) {
        if (model_set_threads(context, threads) || model_main(context, args, 2, &result, 1)) {
            fprintf(stderr, "%s\n", model_error());
            return 1;
        }
        const float *y = result.data;
        printf("%g %g %g\n", y[0], y[47], y[39 * 48 + 2]);
    }
    model_close(context);
    return 0;
}
