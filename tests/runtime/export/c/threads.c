/* Calls of `model_main`, x (n,) to twice its squares, with changing numbers of threads, from threads
 * that end, and after a fork. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model.h"

enum { N = 5000 };

static int wrong(int threads, int calls) {
    model_context *context;
    if (model_open(NULL, &context) || model_set_threads(context, threads)) return 1;
    float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)i / N;
    int bad = 0;
    for (int k = 0; k < calls && !bad; k++) {
        relaxlab_tensor arg = {x, RELAXLAB_FLOAT32, 1, {N}}, result;
        if (model_main(context, &arg, 1, &result, 1)) return 1;
        const float *y = result.data;
        for (int i = 0; i < N; i++) bad |= y[i] != x[i] * x[i] * 2;
        model_release(context, &result);
        if (model_set_threads(context, 1 + (threads + k) % 5)) return 1;
    }
    model_close(context);
    return bad;
}

static void *caller(void *argument) {
    int *result = argument;
    *result = wrong(3, 100);
    return NULL;
}

int main(void) {
    int failed = wrong(2, 50);
    for (int round = 0; round < 5; round++) {
        pthread_t threads[4];
        int results[4];
        memset(results, 1, sizeof results);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, caller, &results[i]);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            failed |= results[i];
        }
    }
    pid_t child = fork();
    if (child == 0) _exit(wrong(2, 10));
    int status = 1;
    waitpid(child, &status, 0);
    failed |= status | wrong(2, 10);
    puts(failed ? "wrong" : "right");
    return failed;
}
