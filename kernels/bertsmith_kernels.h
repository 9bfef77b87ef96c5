// The C interface of bertsmith's native encoder: the forward pass of a whole encoder for a packed
// batch in one call.
//
// encoder.cpp, compiled once for each instruction set, is the forward pass: products.h multiplies,
// attention.h attends, rows.h does what is done to single rows, packing.h prepares weights, simd.h
// has the vectors. dispatch.cpp cuts a batch into chunks of whole sequences, which threads.cpp has
// computed, each through all layers while it lies in the cache.
#ifndef BERTSMITH_KERNELS_H
#define BERTSMITH_KERNELS_H

#include <stdint.h>

#define BS_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum { BS_FP32, BS_BF16, BS_INT8 };
enum { BS_WRONG = -1, BS_NOTHING, BS_AVX2, BS_AVX512, BS_AVX512_BF16 };
enum { BS_OK, BS_NO_MEMORY, BS_BAD_TOKEN, BS_BAD_SEGMENT, BS_BAD_POSITION, BS_BAD_OFFSETS, BS_BAD_PLACES };

// Sizes and wiring, as in EncoderConfig.
typedef struct {
    int32_t instruction_set, precision;
    int32_t hidden, heads, feed_forward, embedding;  // embedding: 0 where it is hidden
    int32_t layers, blocks;
    int32_t vocabulary, segments, position_rows, position_offset;  // position_rows: 0 for no table
    int32_t gated, tanh_gelu, norm_before, causal;
    int32_t reach, global_every;  // reach: tokens on either side in local attention, -1 for all
    float epsilon;
} bs_shape;

// (outputs, inputs) as torch has it; bias may be null.
typedef struct {
    const float *weight, *bias;
} bs_linear;

typedef struct {
    const float *weight, *bias;  // weight null: no norm here
} bs_norm;

typedef struct {
    bs_linear query, key, value, output, up, gate, down;  // gate.weight null: not gated
    bs_norm attention_norm, feed_forward_norm;
} bs_block;

// Tables are read where they are and have to outlive the encoder. The turns of rotary positions are
// (2, positions, head / 2) each: cosines, then sines; null where there are none.
typedef struct {
    const float *tokens, *segments, *positions;
    bs_norm norm;
    bs_linear widen;  // weight null: none
    bs_norm final_norm;
    const float *turns, *local_turns;
    int32_t turned_positions;
} bs_ends;

// A packed batch and where its results go.
typedef struct {
    int64_t tokens, sequences;
    const int64_t *ids, *segments, *positions, *offsets;
    const int64_t* at;  // null: all tokens; else `places` of them in order, each once
    int64_t places;
    int32_t layers;   // to compute
    int32_t threads;  // at most
    float* last;      // (places or tokens, hidden)
    float** states;   // layers + 1 pointers to (tokens, hidden), null for those not wanted; may be null
} bs_call;

typedef struct bs_encoder bs_encoder;

// To be raised with each change of what a function or structure means: a library compiled from other
// sources than the Python that loads it is then refused.
#define BS_INTERFACE 1

// The version above, and the sizes of bs_shape, bs_ends, bs_block and bs_call.
BS_API void bs_interface(int64_t found[5]);

// The best instruction set that this processor, and BERTSMITH_KERNELS when the library was loaded,
// allow; BS_WRONG where its products fail their test.
BS_API int32_t bs_instruction_set(void);

// Null where there is no memory, or no such instruction set. `blocks` has as many entries as the shape says.
BS_API bs_encoder* bs_encoder_new(const bs_shape* shape, const bs_ends* ends, const bs_block* blocks);
BS_API void bs_encoder_free(bs_encoder* encoder);

// BS_OK, or what is wrong with the batch. May be called by several threads at once.
BS_API int32_t bs_encoder_forward(const bs_encoder* encoder, const bs_call* call);

#ifdef __cplusplus
}
#endif

#endif
