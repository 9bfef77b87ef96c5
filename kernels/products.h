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

// Writes the product of R rows of a (`stride` values apart) and V vectors of columns of b (its rows
// of words `columns` apart) to `to`. Each sum runs over the words in order, whatever R and V are.
template <class T, int R, int V>
__attribute__((noinline)) void tile(
    const T* a, long stride, const void* b, long columns, long words, void* to, long to_columns
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
using Tile = void (*)(const T*, long, const void*, long, long, void*, long);

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
    (V == 1 ? SINGLE<T> : DOUBLE<T>)[rows - 1](a, stride, b, columns, words, to, to_columns);
}

// Rows cut into tiles of about equal height.
template <class T>
struct Tiles {
    int rows, count;
    explicit Tiles(int n) : rows(n), count((n + TILE_ROWS<T> - 1) / TILE_ROWS<T>) {}
    int begin(int tile) const { return static_cast<int>(static_cast<long>(rows) * tile / count); }
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

#ifdef HAS_AMX
// Words of a panel that are multiplied with all rows before the next: they stay in the L1 cache.
constexpr long AMX_BLOCK = 192;
// Rows whose sums are kept meanwhile.
constexpr int AMX_GROUP = 128;

// Rows of up to AMX_GROUP with a panel. While tiles are multiplied, what is done to the sums of those
// before can go on: neither waits for the other.
template <class T, class Use>
INLINE void product_of_group(const Rows<T>& in, Range rows, const Weights& w, int panel, Use&& use) {
    alignas(64) typename Product<T>::Sum sums[AMX_GROUP * PANEL];
    const char* right = static_cast<const char*>(w.values) + panel * w.words * PANEL * WORD<T>;
    const long column = static_cast<long>(panel) * PANEL;
    for (long word = 0; word < w.words; word += AMX_BLOCK) {
        const bool last = word + AMX_BLOCK >= w.words;
        const long count = last ? w.words - word : AMX_BLOCK;
        const char* block = right + word * PANEL * WORD<T>;
        Range before = {rows.begin, rows.begin};
        for (int r = rows.begin; r < rows.end; r += 2 * AMX_ROWS) {
            const T* left = in.values + r * in.stride + word * PER_WORD<T>;
            auto* own = sums + (r - rows.begin) * PANEL;
            // all groups of rows together ask for the next block
            const char* soon = block + (AMX_BLOCK + (r - rows.begin) / (2 * AMX_ROWS) * count / 4) * PANEL * WORD<T>;
            if (rows.end - r > AMX_ROWS) multiply_tiles<T, 2, 2>(left, in.stride, block, PANEL, count, own, PANEL, word, soon);
            else multiply_tiles<T, 1, 2>(left, in.stride, block, PANEL, count, own, PANEL, word, soon);
            if (!last) continue;
            finish(in, before, w, column, sums + (before.begin - rows.begin) * PANEL, use);
            before = {r, r + 2 * AMX_ROWS < rows.end ? r + 2 * AMX_ROWS : rows.end};
        }
        if (last) finish(in, before, w, column, sums + (before.begin - rows.begin) * PANEL, use);
    }
}
#endif

// Multiplies rows with some panels; `use(row, column, low, high)` gets each row of each panel, biases
// added, as two vectors.
template <class T, class Use>
INLINE void product(const Rows<T>& in, int rows, const Weights& w, Range panels, Use&& use) {
#ifdef HAS_AMX
    if constexpr (BY_AMX<T>) {
        for (int begin = 0; begin < rows; begin += AMX_GROUP) {
            const Range group = {begin, begin + AMX_GROUP < rows ? begin + AMX_GROUP : rows};
            for (int panel = panels.begin; panel < panels.end; panel++)
                product_of_group(in, group, w, panel, use);
        }
        return;
    }
#endif
    alignas(64) typename Product<T>::Sum sums[TILE_ROWS<T> * PANEL];
    const Tiles<T> tiles(rows);
    for (int panel = panels.begin; panel < panels.end; panel++) {
        const char* right = static_cast<const char*>(w.values) + panel * w.words * PANEL * WORD<T>;
        const long column = static_cast<long>(panel) * PANEL;
        for (int t = 0; t < tiles.count; t++) {
            const int begin = tiles.begin(t), height = tiles.begin(t + 1) - begin;
            const T* left = in.values + begin * in.stride;
            compute_tile<T, 2>(height, left, in.stride, right, PANEL, w.words, sums, PANEL);
            finish(in, {begin, begin + height}, w, column, sums, use);
        }
    }
}

}  // namespace KERNELS
