// Attention within one sequence, for one head.
#pragma once

#include "rows.h"

namespace KERNELS {

// The queries of a sequence and the keys they see. Queries, keys and values are rows of one stride.
template <class T>
struct Sequence {
    const T *query, *key, *value;
    T* to;
    long stride, to_stride;
    int queries, keys;
    const int64_t* places;  // the queries' tokens in the batch; null where they are all of the sequence
    int64_t first;          // token of the sequence in the batch
    bool causal;
    int reach;  // tokens seen on either side; -1 for all

    Range seen(int query) const {
        const int place = places ? static_cast<int>(places[query] - first) : query;
        const int begin = reach < 0 || place < reach ? 0 : place - reach;
        const int last = causal ? place : reach < 0 ? keys - 1 : place + reach;
        return {begin, last < keys ? last + 1 : keys};
    }
};

// Memory of one thread: a head's keys and values as products want them, a tile's scores and weights.
template <class T>
struct Scratch {
    T *keys, *values, *weights;
    float* scores;
    long columns;  // of keys, scores and weights: the longest sequence's tokens, up to whole panels
};

#ifdef __AVX512F__
// Transposes 16 rows of 16 words each.
INLINE void transpose(const int32_t* const from[LANES], int32_t* to, long stride) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from[i]);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
            a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            b[i + j] = _mm512_shuffle_i32x4(a[i + j], a[i + j + 4], 0x88);
            b[i + j + 4] = _mm512_shuffle_i32x4(a[i + j], a[i + j + 4], 0xDD);
        }
    for (int j = 0; j < 8; j++) {
        const __m512i low = _mm512_shuffle_i32x4(b[j], b[j + 8], 0x88);
        const __m512i high = _mm512_shuffle_i32x4(b[j], b[j + 8], 0xDD);
        _mm512_storeu_si512(to + j * stride, low);
        _mm512_storeu_si512(to + (j + 8) * stride, high);
    }
}
#else
// Transposes 8 rows of 8 words each.
INLINE void transpose(const int32_t* const from[LANES], int32_t* to, long stride) {
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = load_words(from[i]);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + j + 2]);
            a[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + j + 2]);
        }
    for (int j = 0; j < 4; j++) {
        store_words(to + j * stride, _mm256_permute2x128_si256(a[j], a[j + 4], 0x20));
        store_words(to + (j + 4) * stride, _mm256_permute2x128_si256(a[j], a[j + 4], 0x31));
    }
}
#endif

// Keys as a right matrix: a column each, the words of a head's width below each other. `width` is a
// multiple of 16 values; behind the last key there are copies of it, whose weights become zero.
template <class T>
INLINE void pack_keys(const Sequence<T>& s, int width, const Scratch<T>& to) {
    auto* out = reinterpret_cast<int32_t*>(to.keys);
    const long depth = words<T>(width);
    for (int key = 0; key < s.keys; key += LANES) {
        const int32_t* from[LANES];
        for (int i = 0; i < LANES; i++) {
            const int own = key + i < s.keys ? key + i : s.keys - 1;
            from[i] = reinterpret_cast<const int32_t*>(s.key + own * s.stride);
        }
        long word = 0;
        for (; word + LANES <= depth; word += LANES) {
            transpose(from, out + word * to.columns + key, to.columns);
            for (int i = 0; i < LANES; i++) from[i] += LANES;
        }
        for (long rest = 0; word + rest < depth; rest++)
            for (int i = 0; i < LANES; i++)
                out[(word + rest) * to.columns + key + i] = from[i][rest];
        for (word = depth; word % WORDS_TOGETHER<T>; word++)
            store_words(out + word * to.columns + key, splat(0));
    }
}

// Keys that a sum over them begins at a multiple of, and is filled up to with zeros: a row's sums are
// then cut in the same places whatever other rows a tile has.
template <class T>
constexpr int KEYS_BEGIN = BY_AMX<T> ? WORDS_TOGETHER<T> * PER_WORD<T> : LANES;
template <class T>
constexpr int KEYS_TOGETHER = WORDS_TOGETHER<T> * PER_WORD<T>;

// Values as a right matrix: for floats the rows as they are, for bf16 the words of two keys.
INLINE void pack_values(const Sequence<float>& s, int width, const Scratch<float>& to) {
    for (int key = 0; key < s.keys; key++)
        for (int i = 0; i < width; i += LANES)
            store(to.values + static_cast<long>(key) * width + i, load(s.value + key * s.stride + i));
}

#ifdef HAS_BF16
INLINE void pack_values(const Sequence<bf16>& s, int width, const Scratch<bf16>& to) {
    const int filled = static_cast<int>(up_to(s.keys, KEYS_TOGETHER<bf16>));
    for (int key = 0; key < filled; key += 2) {
        const bf16* even = s.value + key * s.stride;
        const bf16* odd = even + s.stride;
        for (int i = 0; i < width; i += LANES) {
            const auto wide = [](const bf16* p) {
                return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
            };
            const I low = key < s.keys ? wide(even + i) : splat(0);
            const I high = key + 1 < s.keys ? _mm512_slli_epi32(wide(odd + i), 16) : splat(0);
            store_words(to.values + static_cast<long>(key) * width + 2 * i, _mm512_or_si512(low, high));
        }
    }
}
#endif

// Scores of some keys (powers of 2) to their weights, not divided by the sum, which is returned.
// Weights from `begin` to `end` that belong to keys which are not seen are zero.
template <class T>
INLINE float softmax(const float* scores, Range seen, Range all, T* weights) {
    const F least = splat(-1e30f), nothing = splat(0.0f);
    const int whole = seen.begin + (seen.end - seen.begin) / LANES * LANES, rest = seen.end - whole;
    F most = rest ? load(scores + whole, rest, least) : least;
    for (int i = seen.begin; i < whole; i += LANES) most = max(most, load(scores + i));
    const F top = splat(largest(most));
    F total = nothing;
    const auto weigh = [&](F score, int key) {
        const F weight = exp2<ACCURACY<T>>(score - top);
        total = total + weight;
        store(weights + key, weight);
    };
    for (int i = all.begin; i < seen.begin; i += LANES) store(weights + i, nothing);
    for (int i = seen.begin; i < whole; i += LANES) weigh(load(scores + i), i);
    if (rest) weigh(load(scores + whole, rest, least), whole);
    // a word may end in the key behind the last
    for (int i = whole + (rest ? LANES : 0); i <= all.end; i += LANES) store(weights + i, nothing);
    return sum(total);
}

// Queries come multiplied by log2(e) / sqrt(head). The scores of a tile of queries with all keys they
// see are kept whole: for 8,192 keys that is 400 KB, which the L2 cache holds, and no sum depends on
// how keys would be cut into blocks.
template <class T>
INLINE void attend(const Sequence<T>& s, int width, const Scratch<T>& scratch) {
    pack_keys(s, width, scratch);
    pack_values(s, width, scratch);
    const long depth = up_to(words<T>(width), WORDS_TOGETHER<T>);
    alignas(64) float out[TILE_ROWS<T> * PANEL];
    const Tiles<T> tiles(s.queries, TILE_ROWS<T>);
    for (int t = 0; t < tiles.count; t++) {
        const int begin = tiles.begin(t), rows = tiles.begin(t + 1) - begin;
        const int first = s.seen(begin).begin / KEYS_BEGIN<T> * KEYS_BEGIN<T>;
        const int end = static_cast<int>(up_to(s.seen(begin + rows - 1).end, KEYS_TOGETHER<T>));
        const Range keys = {first, end};
        const long wanted = up_to(keys.end - keys.begin, LANES);
        multiply(
            s.query + begin * s.stride, s.stride, rows,
            reinterpret_cast<const int32_t*>(scratch.keys) + keys.begin, scratch.columns, depth,
            scratch.scores + keys.begin, scratch.columns, wanted
        );
        float factor[TILE_ROWS<T>];
        for (int r = 0; r < rows; r++) {
            T* weights = scratch.weights + r * scratch.columns;
            factor[r] = 1.0f / softmax(scratch.scores + r * scratch.columns, s.seen(begin + r), keys, weights);
        }
        const T* left = scratch.weights + keys.begin;
        const auto* right = reinterpret_cast<const int32_t*>(scratch.values + static_cast<long>(keys.begin) * width);
        const long used = words<T>(keys.end - keys.begin);
        for (int column = 0; column < width; column += PANEL) {
            const int part = width - column < PANEL ? width - column : PANEL;
            multiply(left, scratch.columns, rows, right + column, width, used, out, PANEL, part);
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < part; i += LANES)
                    store(s.to + (begin + r) * s.to_stride + column + i, load(out + r * PANEL + i) * splat(factor[r]));
        }
    }
}

}  // namespace KERNELS
