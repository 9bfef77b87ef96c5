// Products by AMX: the processor's own tiles, of 16 rows of 64 bytes each.
//
// Packed weights lie as AMX wants its right operand, words of a column below each other, so that it
// reads what the other instruction sets read. One instruction adds the products of 16 words of 16
// rows and 16 columns to 256 sums. It sums them in an order of its own, bf16 by pairs: sums of bf16
// differ from those of AVX-512 in their last bits, so that a row is never computed by both.
#pragma once

#ifdef __AMX_TILE__
#define HAS_AMX 1

#include "simd.h"

namespace KERNELS {

constexpr int AMX_ROWS = 16, AMX_WORDS = 16;
// Cache lines that are asked for, for later, at every step of 32 rows.
constexpr int AMX_LINES = 8;

// Gives this thread's tiles their shapes, and frees them at its end: others may use AMX too.
class TileShapes {
public:
    TileShapes() {
        struct {
            uint8_t palette, first_row, reserved[14];
            uint16_t bytes[16];
            uint8_t rows[16];
        } shapes;
        std::memset(&shapes, 0, sizeof(shapes));
        shapes.palette = 1;
        for (int tile = 0; tile < 8; tile++) shapes.bytes[tile] = 4 * AMX_WORDS, shapes.rows[tile] = AMX_ROWS;
        // GCC's intrinsic says of the first bytes alone that they are read
        asm volatile("" ::"m"(shapes));
        _tile_loadconfig(&shapes);
    }
    ~TileShapes() { _tile_release(); }
    TileShapes(const TileShapes&) = delete;
    TileShapes& operator=(const TileShapes&) = delete;
};

// The tiles: sums of two vectors of columns for 16 rows and for the next 16, both left operands, both
// right ones. GCC's intrinsics make names of registers of what they are given, so that these are
// macros. Nor do they say that they read memory.
#define SUMS_00 0
#define SUMS_01 1
#define SUMS_10 2
#define SUMS_11 3
#define LEFT_0 4
#define LEFT_1 5
#define RIGHT_0 6
#define RIGHT_1 7
#define EACH_SUMS(DO)                                 \
    do {                                              \
        DO(SUMS_00, 0, 0);                            \
        if constexpr (V == 2) DO(SUMS_01, 0, 1);      \
        if constexpr (R == 2) DO(SUMS_10, 1, 0);      \
        if constexpr (R == 2 && V == 2) DO(SUMS_11, 1, 1); \
    } while (false)
#define CLEAR(SUMS, r, v) _tile_zero(SUMS)
#define LOAD(SUMS, r, v) _tile_loadd(SUMS, out + (r) * AMX_ROWS * to_stride + (v) * 4 * LANES, to_stride)
#define STORE(SUMS, r, v) _tile_stored(SUMS, out + (r) * AMX_ROWS * to_stride + (v) * 4 * LANES, to_stride)
#define MULTIPLY_ADD(SUMS, A, B)                            \
    do {                                                    \
        if constexpr (sizeof(T) == 2) _tile_dpbf16ps(SUMS, A, B); \
        else _tile_dpbusd(SUMS, A, B);                      \
    } while (false)

// Writes the product of R times 16 rows of a and V vectors of columns of b, as `tile` does, or adds it to
// what is there. Rows behind those that are wanted may hold anything, and so then do theirs of the
// result. `words` is a multiple of 16. Meanwhile what comes after `soon` is moved to the L2 cache.
template <class T, int R, int V>
INLINE void multiply_tiles(
    const T* a, long stride, const void* b, long columns, long words, void* to, long to_columns, bool add,
    const char* soon
) {
    const char* left = reinterpret_cast<const char*>(a);
    const char* right = static_cast<const char*>(b);
    char* out = static_cast<char*>(to);
    const long left_stride = stride * static_cast<long>(sizeof(T));
    const long right_stride = 4 * columns, to_stride = 4 * to_columns;
    asm volatile("" ::: "memory");
    if (add) EACH_SUMS(LOAD);
    else EACH_SUMS(CLEAR);
    for (long word = 0; word < words; word += AMX_WORDS) {
        _tile_loadd(RIGHT_0, right, right_stride);
        _tile_loadd(LEFT_0, left, left_stride);
        MULTIPLY_ADD(SUMS_00, LEFT_0, RIGHT_0);
        if constexpr (V == 2) {
            _tile_loadd(RIGHT_1, right + 4 * LANES, right_stride);
            MULTIPLY_ADD(SUMS_01, LEFT_0, RIGHT_1);
        }
        if constexpr (R == 2) {
            _tile_loadd(LEFT_1, left + AMX_ROWS * left_stride, left_stride);
            MULTIPLY_ADD(SUMS_10, LEFT_1, RIGHT_0);
            if constexpr (V == 2) MULTIPLY_ADD(SUMS_11, LEFT_1, RIGHT_1);
#pragma GCC unroll 8
            for (int line = 0; line < AMX_LINES; line++, soon += 64) _mm_prefetch(soon, _MM_HINT_T1);
        }
        left += 4 * AMX_WORDS;
        right += AMX_WORDS * right_stride;
    }
    EACH_SUMS(STORE);
}

#undef SUMS_00
#undef SUMS_01
#undef SUMS_10
#undef SUMS_11
#undef LEFT_0
#undef LEFT_1
#undef RIGHT_0
#undef RIGHT_1
#undef EACH_SUMS
#undef CLEAR
#undef LOAD
#undef STORE
#undef MULTIPLY_ADD

}  // namespace KERNELS

#endif
