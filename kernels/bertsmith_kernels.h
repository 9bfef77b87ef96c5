// The C interface of bertsmith's native kernels: the forward pass of a whole encoder for a packed
// batch in one call, and of training the cross-entropy, on which it spends most of its time outside
// products, and the masks of dropout. Everything below it is arranged so that the products of weights run at the
// processor's peak, that what lies between them stays in the cache, and that a token's result does
// not depend, by a single bit, on its neighbours, the batch or the number of threads.
//
// The files, lowest first:
//   simd.h       the vectors of one instruction set
//   amx.h        products of the tiles of AMX
//   products.h   products of rows with packed weights, in tiles
//   rows.h       what is done to single rows: layer norm, GELU, conversion, quantisation
//   attention.h  attention of one head within one sequence
//   packing.h    weights as torch has them made what products read
//   encoder.cpp  one forward pass; all of the above is compiled with it, once for each instruction
//                set, into a namespace of its own
//   cross_entropy.cpp  losses of rows of logits and their gradients, likewise
//   dropout.cpp  masks of dropout, likewise
//   threads.cpp  threads that wait for work
//   dispatch.cpp the C functions: choice of instruction set, checks, chunks
//
// Packing. Products read words of four bytes: one float, two bf16 or four bytes that follow each
// other in a row of the left matrix, and in a column of the right one. That is the operand of one
// lane of an FMA, VDPBF16PS or VPDPBUSD, and a word of the tiles of AMX, so one layout serves all. Weights lie in panels of
// two vectors of columns (32, with AVX2 16), in each the words of a column below each other, filled
// up with zeros. Heads are filled up to multiples of 16 values when queries, keys and values are
// packed, so that attention knows no odd sizes; a gated feed-forward network has a vector of each of
// its two matrices in every panel. Rows of the left matrix lie an odd number of cache lines apart.
//
// Weights are packed panel by panel, by threads that take the next one. Those in a file are read as many
// rows at a time as a panel has columns, and checked and packed while they lie in the L2 cache: a whole
// block would go to memory and come back twice.
//
// Tiles. 12 rows by 2 vectors (AVX2: 6) keep 24 sums in registers: for a word of each row two loads
// of weights, 12 broadcasts and 24 multiply-adds. A panel lies in the L1 or the
// L2 cache and is used for all rows of a chunk before the next. Rows that are no multiple of 12
// are cut into tiles of about equal height. Every sum runs over the words in order, whatever the
// height, which is why results have the same bits in any company. AMX multiplies 16 rows whatever is
// wanted, and 32 rows by 32 columns at once; as it is fast enough to wait for the caches, 192 words
// of a panel at a time are used for up to 128 rows, while the next are fetched.
//
// Chunks. A batch is cut into chunks of whole sequences, about 256 tokens (128 for wide encoders),
// that go through all layers while they lie in the L2 cache; the weights stream past them. Threads
// take chunks, the costliest first. Where there are fewer chunks than threads, as for a single text,
// the threads can share each product's panels, attention's heads and the rows of norms; they wait for
// each other after every step, spinning for some microseconds and then yielding. As that is slower
// than one thread where another process takes a core, both ways are timed, and the faster is taken.
// A sequence longer than a chunk is a chunk of its own; memory grows linearly with its length.
//
// Numbers. The residual stream, norms, softmax and sums are float32. bf16: inputs of products are
// rounded to bf16, with cheaper polynomials for GELU and softmax that err less than that rounding.
// int8: weights have a scale for each output, activations a scale and a zero point for each token,
// sums are exact in 32 bits; attention is in bf16 where the processor has it, else in
// float32. Where there is no VNNI, int8 products multiply 16-bit numbers, and do not saturate; AVX2
// keeps weights as bytes all the same and widens them as it loads them.
//
// Instruction sets: AVX2 with FMA (float32, int8), AVX-512 F/BW/DQ/VL (the same), these with BF16 and
// VNNI (all), and with AMX (products of bf16 and int8). Another one is another branch of simd.h and
// another line in dispatch.cpp and hatch_build.py.
#ifndef BERTSMITH_KERNELS_H
#define BERTSMITH_KERNELS_H

#include <stdint.h>

#define BS_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum { BS_FP32, BS_BF16, BS_INT8 };
enum { BS_WRONG = -1, BS_NOTHING, BS_AVX2, BS_AVX512, BS_AVX512_BF16, BS_AMX };
enum { BS_OK, BS_NO_MEMORY, BS_BAD_TOKEN, BS_BAD_SEGMENT, BS_BAD_POSITION, BS_BAD_OFFSETS, BS_BAD_PLACES,
       BS_BAD_LABEL, BS_BAD_TYPE, BS_UNREADABLE, BS_SHORT, BS_NOT_FINITE };

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

// Where a tensor is: nowhere, in memory as float32, or in a file, as numbers of some type.
enum { BS_ABSENT, BS_MEMORY, BS_FILE_F32, BS_FILE_F64, BS_FILE_F16, BS_FILE_BF16 };

// Contiguous numbers; those of a file are rounded to float32.
typedef struct {
    int32_t place, file;  // file: a descriptor
    int64_t offset;       // in the file, of the first byte
    const float* values;  // in memory
} bs_tensor;

// A linear layer, its weight (outputs, inputs) as torch has it, or a norm. Without a weight it is not there.
typedef struct {
    bs_tensor weight, bias;
} bs_affine;

typedef struct {
    bs_affine query, key, value, output, up, gate, down;  // gate: where it is gated
    bs_affine attention_norm, feed_forward_norm;
} bs_block;

// All in memory. Tables are read where they are and have to outlive the encoder. The turns of rotary
// positions are (2, positions, head / 2) each: cosines, then sines; null where there are none.
typedef struct {
    const float *tokens, *segments, *positions;
    bs_affine norm, widen, final_norm;
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

// The GOMP_parallel of the caller's OpenMP, whose threads then do the work: they may still spin on the
// cores that the library's own would need.
typedef void (*bs_parallel)(void (*work)(void*), void* data, unsigned threads, unsigned flags);

// Rows of logits, float or bf16, `stride` values apart, and what is computed of each.
typedef struct {
    const void* logits;
    const float* bias;       // added to each row; may be null
    void* gradient;          // of the same type and stride, or the logits themselves; null: none
    float* sums;             // (groups, classes): the gradient, not rounded, summed over the rows of a group; may be null
    const int64_t* labels;   // a class a row
    float* losses;
    uint8_t* correct;        // whether the label's logit is larger than all others
    // Threads take one group of rows after the other, so that sums do not depend on their number.
    int64_t rows, classes, stride, groups;
    bs_parallel parallel;  // may be null
    int32_t instruction_set, bf16, threads;  // threads: at most
} bs_losses;

// Integers of two or four bytes: all bits set where an entry is kept, none where dropout drops it.
typedef struct {
    void* mask;
    int64_t count;
    bs_parallel parallel;    // may be null
    uint32_t first, second;  // the keys of the hash, from which all follows
    int32_t dropped;         // so many of the 256 values of a byte drop an entry, 1 to 255
    int32_t bytes, instruction_set, threads;  // threads: at most
} bs_masks;

typedef struct bs_encoder bs_encoder;

// To be raised with each change of what a function or structure means: a library compiled from other
// sources than the Python that loads it is then refused.
#define BS_INTERFACE 9

// The version above, and the sizes of bs_shape, bs_ends, bs_block, bs_call, bs_losses and bs_masks.
BS_API void bs_interface(int64_t found[7]);

// The best instruction set that this processor, and BERTSMITH_KERNELS when the library was loaded,
// allow; BS_WRONG where its products fail their test.
BS_API int32_t bs_instruction_set(void);

// Null where there is no memory, or no such instruction set. Each block needs its weights before the first
// forward pass.
BS_API bs_encoder* bs_encoder_new(const bs_shape* shape, const bs_ends* ends);
// Packs the weights of a block, each block once, by so many threads at most; they are not read any more
// then. BS_OK, BS_NO_MEMORY, or for a tensor in a file, whose number in bs_block and the system's error are
// told, BS_UNREADABLE, BS_SHORT where the file ends before it, BS_NOT_FINITE.
BS_API int32_t bs_encoder_set_block(
    bs_encoder* encoder, int32_t number, const bs_block* weights, int32_t threads, int32_t told[2]
);
BS_API void bs_encoder_free(bs_encoder* encoder);

// BS_OK, or what is wrong with the batch. May be called by several threads at once.
BS_API int32_t bs_encoder_forward(bs_encoder* encoder, const bs_call* call);

// BS_OK, BS_NO_MEMORY, BS_BAD_LABEL, or BS_BAD_TYPE for bf16 without such instructions.
// A row's results do not depend on the others. May be called by several threads at once.
BS_API int32_t bs_cross_entropy(const bs_losses* call);

// BS_OK, BS_NO_MEMORY, or BS_BAD_TYPE for integers of other sizes. May be called by several threads at once.
BS_API int32_t bs_dropout_masks(const bs_masks* call);

// Whether no number is infinite or not a number, 1 or 0, by one thread.
BS_API int32_t bs_all_finite(const float* numbers, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
