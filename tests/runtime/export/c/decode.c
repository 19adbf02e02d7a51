/* Run an exported language model and write the logits after each call.
 *
 * decode OUT THREADS PROMPT ID...   PROMPT: how many of the ids are read at once, by `prefill` (0
 *                                   if the model has none); the rest are decoded one by one
 *                                   OUT: float32 (calls, VOCABULARY), raw
 *
 * The sizes of the model and the name of its header come from the compiler's command line. */
#include <stdio.h>
#include <stdlib.h>

#include MODEL_HEADER

static void require(int status, const char *what) {
    if (status == RELAXLAB_OK) return;
    fprintf(stderr, "%s: %s\n", what, model_error());
    exit(1);
}

/* A KV cache: per layer the keys (1, heads, positions / 16, head_dim, 16) and the values
 * (1, heads, positions, head_dim), float32 zeros. */
static void make_cache(relaxlab_tensor *cache) {
    for (int i = 0; i < LAYERS; i++) {
        cache[2 * i] = (relaxlab_tensor){
            calloc((size_t)HEADS * POSITIONS * HEAD_DIM, sizeof(float)), RELAXLAB_FLOAT32, 5,
            {1, HEADS, POSITIONS / 16, HEAD_DIM, 16}};
        cache[2 * i + 1] = (relaxlab_tensor){
            calloc((size_t)HEADS * POSITIONS * HEAD_DIM, sizeof(float)), RELAXLAB_FLOAT32, 4,
            {1, HEADS, POSITIONS, HEAD_DIM}};
    }
}

static void write_logits(FILE *out, model_context *context, relaxlab_tensor *logits) {
    if (logits->dtype != RELAXLAB_FLOAT32 || logits->ndim != 2 || logits->shape[0] != 1 ||
        logits->shape[1] != VOCABULARY)
        exit(2);
    fwrite(logits->data, sizeof(float), VOCABULARY, out);
    model_release(context, logits);
}

int main(int argc, char **argv) {
    if (argc < 5) return 3;
    FILE *out = fopen(argv[1], "wb");
    if (!out) return 4;
    model_context *context;
    require(model_open(NULL, &context), "open");
    require(model_verify(context), "verify");
    require(model_set_threads(context, atoi(argv[2])), "threads");

    int32_t ids[POSITIONS];
    int64_t past = 0, prompt = atoi(argv[3]), count = argc - 4;
    for (int64_t i = 0; i < count && i < POSITIONS; i++) ids[i] = atoi(argv[4 + i]);
    relaxlab_tensor args[MODEL_DECODE_ARGS] = {
        {ids, RELAXLAB_INT32, 2, {1, prompt}},
        {&past, RELAXLAB_INT64, 1, {1}},
    };
    make_cache(args + 2);
    relaxlab_tensor logits;
#ifdef MODEL_PREFILL_ARGS
    require(model_prefill(context, args, MODEL_PREFILL_ARGS, &logits, 1), "prefill");
    write_logits(out, context, &logits);
#endif
    args[0].shape[1] = 1;
    for (past = prompt; past < count; past++) {
        args[0].data = ids + past;
        require(model_decode(context, args, MODEL_DECODE_ARGS, &logits, 1), "decode");
        write_logits(out, context, &logits);
    }
    for (int i = 2; i < 2 + 2 * LAYERS; i++) free(args[i].data);
    model_close(context);
    return fclose(out) != 0;
}
