// Products of packed rows with packed weights. The head of bertsmith_kernels.h explains the layout.
#pragma once

#include "amx.h"
#include "encoder.h"
#include "simd.h"

namespace KERNELS {

using bertsmith::Weights;

// A matrix is read in words of four bytes: one float, two bf16, four bytes or two 16-bit numbers
// that follow each other in a row of the left matrix and in a column of the right one. What
// `multiply_add` does with a word of either is all that differs between the precisions, and that
// AVX2 keeps the 16-bit numbers of the right matrix as bytes.
template <class T>
struct Product;

template <>
struct Product<float> {
    using Weight = float;
    using Sum = float;
    using Sums = F;
    static constexpr bool whole_numbers = false;
    INLINE F zero() { return splat(0.0f); }
    INLINE F multiply_add(F sums, I a, I b) { return fma((F)a, (F)b, sums); }
    INLINE void put(float* p, F sums) { store(p, sums); }
};

#ifdef HAS_BF16
template <>
struct Product<bf16> {
    using Weight = bf16;
    using Sum = float;
    using Sums = F;
    static constexpr bool whole_numbers = false;
    INLINE F zero() { return splat(0.0f); }
    INLINE F multiply_add(F sums, I a, I b) {
        return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
    }
    INLINE void put(float* p, F sums) { store(p, sums); }
};
#endif

template <>
struct Product<Activation8> {
    using Weight = Weight8;
    using Sum = int32_t;
    using Sums = I;
    static constexpr bool whole_numbers = true;
    INLINE I zero() { return splat(0); }
    INLINE I multiply_add(I sums, I a, I b) {
#if defined(__AVX512VNNI__)
        return _mm512_dpbusd_epi32(sums, a, b);
#elif defined(__AVX512F__)
        return add(sums, _mm512_madd_epi16(a, b));
#else
        return add(sums, _mm256_madd_epi16(a, b));
#endif
    }
    INLINE void put(int32_t* p, I sums) { store_words(p, sums); }
};

// Bytes of a word of the right matrix.
template <class T>
constexpr int WORD = static_cast<int>(sizeof(typename Product<T>::Weight) * 4 / sizeof(T));

// The words of a vector of columns.
template <class T>
INLINE I load_columns(const char* p) {
#ifndef __AVX512F__
    if constexpr (WORD<T> == 2) return load_bytes(p);
#endif
    return load_words(p);
}

template <class T>
constexpr int PER_WORD = 4 / sizeof(T);

constexpr long up_to(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class T>
constexpr long words(long values) {
    return (values + PER_WORD<T> - 1) / PER_WORD<T>;
}

// Bytes that are asked for, for later, with each word: an eighth of a panel for each step through one.
constexpr long SOON = 16;

// Writes the product of R rows of a (`stride` values apart) and V vectors of columns of b (its rows
// of words `columns` apart) to `to`. Each sum runs over the words in order, whatever R and V are. A
// line of what comes after `soon` is asked for at every fourth word, to be in the L2 cache later; not
// with int8, which gained nothing by it.
template <class T, int R, int V>
__attribute__((noinline)) void tile(
    const T* a, long stride, const void* b, long columns, long words, void* to, long to_columns, const char* soon
) {
    using P = Product<T>;
    typename P::Sums sums[R][V];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) sums[r][v] = P::zero();
    // one pointer for three rows: the others are one and two strides away from it
    const char* rows[(R + 2) / 3];
    for (int r = 0; r < R; r += 3) rows[r / 3] = reinterpret_cast<const char*>(a + r * stride);
    const long step = stride * static_cast<long>(sizeof(T));
    const char* right = static_cast<const char*>(b);
    for (long word = 0; word < words; word++) {
        I column[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) column[v] = load_columns<T>(right + v * LANES * WORD<T>);
        read_ahead(right);
        if (!P::whole_numbers && word % 4 == 0) _mm_prefetch(soon + word * SOON, _MM_HINT_T1);
        right += columns * WORD<T>;
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            const I value = broadcast(rows[r / 3] + r % 3 * step);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sums[r][v] = P::multiply_add(sums[r][v], value, column[v]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r += 3) rows[r / 3] += 4;
    }
    auto* out = static_cast<typename P::Sum*>(to);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) P::put(out + r * to_columns + v * LANES, sums[r][v]);
}

template <class T>
using Tile = void (*)(const T*, long, const void*, long, long, void*, long, const char*);

#ifdef __AVX512F__
#define TILES(V)                                                                              \
    {tile<T, 1, V>, tile<T, 2, V>, tile<T, 3, V>, tile<T, 4, V>,  tile<T, 5, V>,  tile<T, 6, V>, \
     tile<T, 7, V>, tile<T, 8, V>, tile<T, 9, V>, tile<T, 10, V>, tile<T, 11, V>, tile<T, 12, V>}
#else
#define TILES(V) \
    {tile<T, 1, V>, tile<T, 2, V>, tile<T, 3, V>, tile<T, 4, V>, tile<T, 5, V>, tile<T, 6, V>}
#endif
template <class T>
constexpr Tile<T> SINGLE[REGISTER_ROWS] = TILES(1);
template <class T>
constexpr Tile<T> DOUBLE[REGISTER_ROWS] = TILES(2);
#undef TILES

#ifdef HAS_AMX
template <class T>
constexpr bool BY_AMX = sizeof(T) < sizeof(float);
template <class T>
constexpr int TILE_ROWS = BY_AMX<T> ? AMX_ROWS : REGISTER_ROWS;
// of which a matrix has a multiple of words
template <class T>
constexpr int WORDS_TOGETHER = BY_AMX<T> ? AMX_WORDS : 1;
template <bool by_amx>
struct Tiled {};
template <>
struct Tiled<true> : TileShapes {};
#else
template <class T>
constexpr bool BY_AMX = false;
template <class T>
constexpr int TILE_ROWS = REGISTER_ROWS;
template <class T>
constexpr int WORDS_TOGETHER = 1;
template <bool by_amx>
struct Tiled {};
#endif

// Rows behind those of a left matrix that are read: AMX multiplies 16 whatever is wanted.
template <class T>
constexpr int ROWS_BEHIND = BY_AMX<T> ? TILE_ROWS<T> - 1 : 0;

// Writes the product of up to TILE_ROWS rows and V vectors of columns; `to` has place for TILE_ROWS.
template <class T, int V>
INLINE void compute_tile(
    int rows, const T* a, long stride, const void* b, long columns, long words, void* to, long to_columns
) {
#ifdef HAS_AMX
    if constexpr (BY_AMX<T>) {
        multiply_tiles<T, 1, V>(a, stride, b, columns, words, to, to_columns, false, nullptr);
        return;
    }
#endif
    const auto* own = V == 1 ? SINGLE<T> : DOUBLE<T>;
    own[rows - 1](a, stride, b, columns, words, to, to_columns, static_cast<const char*>(b));
}

// Rows cut into tiles of up to `most`: of about equal height, with AMX as many whole ones as there are.
template <class T>
struct Tiles {
    int rows, most, count;
    Tiles(int rows, int most) : rows(rows), most(most), count((rows + most - 1) / most) {}
    int begin(int tile) const {
        if (BY_AMX<T>) return tile < count ? tile * most : rows;
        return static_cast<int>(static_cast<long>(rows) * tile / count);
    }
};

// A product of up to TILE_ROWS rows with any multiple of LANES columns of a matrix in words.
template <class T>
INLINE void multiply(
    const T* a, long stride, int rows, const void* b, long columns, long words, float* to,
    long to_columns, long wanted
) {
    long column = 0;
    const char* right = static_cast<const char*>(b);
    for (; column + PANEL <= wanted; column += PANEL)
        compute_tile<T, 2>(rows, a, stride, right + column * WORD<T>, columns, words, to + column, to_columns);
    if (column < wanted)
        compute_tile<T, 1>(rows, a, stride, right + column * WORD<T>, columns, words, to + column, to_columns);
}

// Rows that a product reads: `stride` values apart, for int8 with the scale and zero of each.
template <class T>
struct Rows {
    T* values;
    long stride;
    float* scale;
    int32_t* zero;

    Rows from(long row) const {
        return {values + row * stride, stride, scale + row, zero + row};
    }
};

struct Range {
    int begin, end;
};

template <class T>
INLINE F finished(const Rows<T>& in, int row, const Weights& w, long column, const float* sums) {
    (void)in, (void)row;
    return load(sums) + load(w.bias + column);
}

INLINE F finished(
    const Rows<Activation8>& in, int row, const Weights& w, long column, const int32_t* sums
) {
    const I shift = multiply(splat(in.zero[row]), load_words(w.sums + column));
    const F scale = load(w.scale + column) * splat(in.scale[row]);
    return fma(to_float(subtract(load_words(sums), shift)), scale, load(w.bias + column));
}

// Gives the sums of some rows of a panel to `use`.
template <class T, class Use>
INLINE void finish(
    const Rows<T>& in, Range rows, const Weights& w, long column, const typename Product<T>::Sum* sums, Use&& use
) {
    for (int r = rows.begin; r < rows.end; r++, sums += PANEL) {
        const F low = finished(in, r, w, column, sums);
        const F high = finished(in, r, w, column + LANES, sums + LANES);
        use(r, column, low, high);
    }
}

// Rows that a panel is multiplied with at once.
template <class T>
constexpr int STEP = BY_AMX<T> ? 2 * TILE_ROWS<T> : TILE_ROWS<T>;
// Steps that go together through a panel, block by block.
constexpr int GROUP = 4;
// Words of a block: with AMX so many that it stays in the L1 cache. Others gained nothing by it.
template <class T>
constexpr long PANEL_BLOCK = BY_AMX<T> ? 192 : long{1} << 40;

// Multiplies up to STEP rows with a block of a panel; adds to the sums of the blocks before, or writes
// them. Meanwhile some of what comes after `soon` is moved to the L2 cache.
template <class T>
INLINE void compute_step(
    int rows, const T* a, long stride, const char* b, long words, typename Product<T>::Sum* to, bool add,
    const char* soon
) {
#ifdef HAS_AMX
    if constexpr (BY_AMX<T>) {
        if (rows > AMX_ROWS) multiply_tiles<T, 2, 2>(a, stride, b, PANEL, words, to, PANEL, add, soon);
        else multiply_tiles<T, 1, 2>(a, stride, b, PANEL, words, to, PANEL, add, soon);
        return;
    }
#endif
    (void)add;  // there is one block
    DOUBLE<T>[rows - 1](a, stride, b, PANEL, words, to, PANEL, soon);
}

// Multiplies rows with some panels; `use(row, column, low, high)` gets each row of each panel, biases
// added, as two vectors. While a step is multiplied by AMX, what is done to the sums of the one before
// goes on: neither waits for the other.
template <class T, class Use>
INLINE void product(const Rows<T>& in, int rows, const Weights& w, Range panels, Use&& use) {
    alignas(64) typename Product<T>::Sum sums[GROUP * STEP<T> * PANEL];
    const Tiles<T> steps(rows, STEP<T>);
    const long groups = (steps.count + GROUP - 1) / GROUP;
    const long most = steps.count > 1 ? PANEL_BLOCK<T> : w.words;
    for (long task = panels.begin * groups; task < panels.end * groups; task++) {
        const long panel = task / groups, column = panel * PANEL;
        const char* right = static_cast<const char*>(w.values) + column * w.words * WORD<T>;
        const int first = static_cast<int>(task % groups) * GROUP;
        const int behind = first + GROUP < steps.count ? first + GROUP : steps.count;
        for (long word = 0; word < w.words; word += most) {
            const bool last = word + most >= w.words;
            const long count = last ? w.words - word : most;
            const char* block = right + word * PANEL * WORD<T>;
            const auto sums_of = [&](int row) { return sums + (row - steps.begin(first)) * PANEL; };
            Range before = {steps.begin(first), steps.begin(first)};
            for (int s = first; s < behind; s++) {
                const Range own = {steps.begin(s), steps.begin(s + 1)};
                const T* left = in.values + own.begin * in.stride + word * PER_WORD<T>;
                // each step asks for a part of the block, or the panel, that is next
                const char* soon = BY_AMX<T> ? block + (most + (s - first) * count / GROUP) * PANEL * WORD<T>
                                             : right + w.words * (PANEL * WORD<T> + s * SOON);
                compute_step(own.end - own.begin, left, in.stride, block, count, sums_of(own.begin), word, soon);
                if (!last) continue;
                finish(in, before, w, column, sums_of(before.begin), use);
                before = own;
            }
            finish(in, before, w, column, sums_of(before.begin), use);
        }
    }
}

}  // namespace KERNELS
