// What the parts of the library share, whatever the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bertsmith_kernels.h"

namespace bertsmith {

// Blocks of memory that are released together. Once one cannot be had, `failed` is true.
class Arena {
public:
    // lasting: what is read for as long as the process lives, from end to end
    explicit Arena(bool lasting) : lasting_(lasting) {}
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena();
    template <class T>
    T* take(size_t count) {
        return static_cast<T*>(block(count * sizeof(T)));
    }
    bool failed = false;

private:
    void* block(size_t bytes);
    struct Link {
        Link* before;
    };
    const bool lasting_;
    Link* last_ = nullptr;
    char* next_ = nullptr;  // in the last chunk
    size_t left_ = 0;
};

// A packed matrix: panels of columns, in each the words of a column below each other; for int8 the
// scale of each column and the sum of its values.
struct Weights {
    void* values;
    float *bias, *scale;
    int32_t* sums;
    int panels;
    long words;
};

// A column of a packed matrix: a row of a tensor, times a factor; null for zeros.
struct Column {
    const bs_tensor* tensor;
    long row;
    float bias, factor;
};

// A matrix that is to be packed: row k of it is input sources[k], -1 for zeros. Sources count up but for
// these. A row of the tensors has `length` numbers.
struct Matrix {
    const Column* columns;
    const int32_t* sources;
    long inputs, length;
    Weights to;
};

// The matrices of a block, and what is needed until they are packed, panel by panel.
struct Plan {
    static constexpr int MATRICES = 4;
    Matrix matrices[MATRICES];
    int panels = 0;
    size_t room = 0;  // bytes for each thread
    Arena memory{false};
};

// What kept a block from being packed: the tensor's number in bs_block, the system's error.
struct Failure {
    int32_t status = BS_OK, tensor = 0, error = 0;
};

struct Norm {
    float *weight, *bias;  // null: none
};

struct Block {
    Weights query_key_value, output, up, down;
    Norm attention_norm, feed_forward_norm;
};

// The threads that compute one chunk together. With one there is nothing to wait for.
class Team {
public:
    explicit Team(int threads) : size(threads) {}
    const int size;
    void wait() {
        if (size > 1) wait_for_all();
    }

private:
    void wait_for_all();
    int arrived_ = 0;
    int phase_ = 0;
};

// Whole sequences of a batch that go through all layers together.
struct Chunk {
    int64_t first_sequence, sequences;
    int64_t first_token, tokens;
    int64_t first_place, places;
    int64_t longest;
};

// Times of batches too small to be split, by the power of 2 of their tokens: computed by one thread
// and by several together. Which is faster depends on what else the processor does at the moment.
struct Trials {
    int64_t nanoseconds[2][32] = {};
    uint32_t calls[32] = {};
};

// What an instruction set offers.
struct Kernels {
    // whether its products are right on this processor
    bool (*self_test)();
    // packs what lies before and after the blocks of an encoder; false where there is no memory
    bool (*prepare)(bs_encoder& encoder);
    // prepares the packing of a block
    Failure (*plan_block)(bs_encoder& encoder, int number, const bs_block& weights, Plan& plan);
    // packs a panel of it
    Failure (*pack_panel)(
        const bs_encoder& encoder, const bs_block& weights, const Plan& plan, int panel, void* memory
    );
    // bytes that a chunk needs for a team of so many
    size_t (*memory)(const bs_encoder& encoder, const Chunk& chunk, int threads);
    // what one thread of a team does for a chunk
    void (*forward)(
        const bs_encoder& encoder, const bs_call& call, const Chunk& chunk, void* memory,
        Team& team, int rank
    );
};

// Reads bytes of a file. BS_OK, BS_UNREADABLE or BS_SHORT.
Failure read_file(int file, int64_t offset, void* to, size_t bytes);

extern const Kernels avx2_kernels, avx512_kernels, avx512_bf16_kernels, amx_kernels;

// Computes a group of rows, with room for one row as floats, up to whole vectors; bf16 only where the
// instruction set has it.
using CrossEntropy = void (*)(const bs_losses& call, int64_t group, float* wide);

extern const CrossEntropy avx2_losses, avx512_losses, avx512_bf16_losses;

// Computes the masks of the entries from `begin`, a multiple of four, to `end`.
using DropoutMasks = void (*)(const bs_masks& call, int64_t begin, int64_t end);

extern const DropoutMasks avx2_masks, avx512_masks;

}  // namespace bertsmith

struct bs_encoder {
    bs_shape shape;
    bs_ends ends;
    const bertsmith::Kernels* kernels;
    bertsmith::Arena arena{true};
    bertsmith::Block* blocks;
    bertsmith::Weights widen;
    bertsmith::Norm embedding_norm, final_norm;
    bertsmith::Trials trials[2];  // one call right after another, and after a rest
    int64_t last_end;             // of a call that was timed, in nanoseconds
};
