/* Use contexts and results in every order, for sanitizers to watch. */
#include <stdio.h>

#include "model.h"

#define REQUIRE(condition)                                        \
    if (!(condition)) {                                           \
        fprintf(stderr, "line %d: %s\n", __LINE__, model_error()); \
        return 1;                                                 \
    }

int main(void) {
    model_context *c, *other;
    REQUIRE(model_open("/nowhere/model.params", &c) == RELAXLAB_FILE && c == NULL);
    REQUIRE(model_open(NULL, &c) == RELAXLAB_OK && model_open(NULL, &other) == RELAXLAB_OK);
    REQUIRE(model_verify(c) == RELAXLAB_OK);

    float x[4] = {0, 1, 2, 3}, cache[8] = {0};
    relaxlab_tensor in = {x, RELAXLAB_FLOAT32, 1, {4}}, several[MODEL_SEVERAL_RESULTS], one;
    for (int threads = 1; threads <= 3; threads++) {
        REQUIRE(model_set_threads(c, threads) == RELAXLAB_OK);
        REQUIRE(model_several(c, &in, 1, several, MODEL_SEVERAL_RESULTS) == RELAXLAB_OK);
        REQUIRE(((float *)several[0].data)[0] == 1 && ((float *)several[2].data)[0] == 1);
        for (int i = threads; i < MODEL_SEVERAL_RESULTS; i++) model_release(c, &several[i]);
    }
    in.ndim = 2, in.shape[0] = in.shape[1] = 2;
    REQUIRE(model_several(c, &in, 1, several, MODEL_SEVERAL_RESULTS) == RELAXLAB_ARGUMENT);
    puts(model_error());

    relaxlab_tensor update[2] = {{cache, RELAXLAB_FLOAT32, 1, {8}}, {x, RELAXLAB_FLOAT32, 1, {2}}};
    REQUIRE(model_update(other, update, MODEL_UPDATE_ARGS, &one, 1) == RELAXLAB_OK);
    REQUIRE(one.data == cache && cache[4] == 1);
    REQUIRE(model_constant(other, NULL, 0, &one, 1) == RELAXLAB_OK);
    REQUIRE(one.shape[0] == 3 && ((float *)one.data)[2] == 3);
    model_release(other, &one);
    REQUIRE(model_nothing(other, update + 1, 1, NULL, 0) == RELAXLAB_OK);
    model_close(c); /* several[0] was never released after some calls */
    model_close(other);
    model_close(NULL);
    return 0;
}
