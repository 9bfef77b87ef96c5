// Weights as torch has them, (outputs, inputs), made what products read.
#pragma once

#include "rows.h"

namespace KERNELS {

using bertsmith::Arena;

// A column of a packed matrix: a row of one of torch's, times a factor; null for zeros.
struct Column {
    const float* weight;
    float bias, factor;
};

INLINE void write(float* to, float value) { *to = value; }
INLINE void write(uint8_t* to, float value) { *to = static_cast<uint8_t>(value); }
INLINE void write(int8_t* to, float value) { *to = static_cast<int8_t>(value); }
INLINE void write(int16_t* to, float value) { *to = static_cast<int16_t>(value); }
INLINE void write(bf16* to, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    to->bits = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

INLINE float largest_of(const Column& column, const int32_t* sources, long inputs) {
    float most = 0.0f;
    for (long k = 0; k < inputs; k++) {
        if (sources[k] < 0) continue;
        const float size = __builtin_fabsf(column.weight[sources[k]]);
        if (size > most) most = size;
    }
    return most;
}

// A matrix that is packed: row k of it is input sources[k], -1 for zeros.
struct Packed {
    const Column* columns;
    const int32_t* sources;
    long inputs;
    const Weights* to;
};

// Packs a panel. A column's values lie a panel's width apart, so that short runs of all columns are
// written in turn, while the lines of the panel that they share lie in the L1 cache.
template <class T>
void pack_panel(const Packed& matrix, long panel) {
    using W = typename Product<T>::Weight;
    constexpr bool whole = Product<T>::whole_numbers;
    constexpr long RUN = 64;
    const Weights& to = *matrix.to;
    const long filled = to.words * PER_WORD<T>;
    const Column* columns = matrix.columns + panel * PANEL;
    W* values = static_cast<W*>(to.values) + panel * PANEL * filled;
    float factors[PANEL];
    int32_t sums[PANEL] = {};
    for (long c = 0; c < PANEL; c++) {
        const Column& column = columns[c];
        factors[c] = column.factor;
        to.bias[panel * PANEL + c] = column.weight ? column.bias * column.factor : 0.0f;
        to.scale[panel * PANEL + c] = 0.0f;
        if (whole && column.weight) {
            const float most = largest_of(column, matrix.sources, matrix.inputs);
            factors[c] = most > 0 ? 127.0f / most : 0.0f;
            to.scale[panel * PANEL + c] = most / 127.0f * column.factor;
        }
    }
    for (long begin = 0; begin < filled; begin += RUN) {
        const long end = begin + RUN < filled ? begin + RUN : filled;
        for (long c = 0; c < PANEL; c++) {
            const float* weight = columns[c].weight;
            W* out = values + c * PER_WORD<T>;
            for (long k = begin; k < end; k++) {
                float value = 0.0f;
                if (weight && k < matrix.inputs && matrix.sources[k] >= 0)
                    value = weight[matrix.sources[k]] * factors[c];
                if (whole) value = __builtin_rintf(value), sums[c] += static_cast<int32_t>(value);
                write(out + k / PER_WORD<T> * PANEL * PER_WORD<T> + k % PER_WORD<T>, value);
            }
        }
    }
    for (long c = 0; c < PANEL; c++) to.sums[panel * PANEL + c] = sums[c];
}

// Packs `panels` panels of columns.
template <class T>
Weights pack(Arena& arena, const Column* columns, int panels, const int32_t* sources, long inputs) {
    const long count = static_cast<long>(panels) * PANEL, depth = up_to(words<T>(inputs), WORDS_TOGETHER<T>);
    Weights to{};
    to.panels = panels;
    to.words = depth;
    to.values = arena.take<typename Product<T>::Weight>(count * depth * PER_WORD<T>);
    to.bias = arena.take<float>(count);
    to.scale = arena.take<float>(count);
    to.sums = arena.take<int32_t>(count);
    if (arena.failed) return to;
    const Packed matrix{columns, sources, inputs, &to};
    for (long panel = 0; panel < panels; panel++) pack_panel<T>(matrix, panel);
    return to;
}

// A norm's values, with zeros up to whole vectors.
INLINE Norm packed_norm(Arena& arena, const bs_norm& norm, int width) {
    if (!norm.weight) return {nullptr, nullptr};
    const long all = up_to(width, PANEL);
    Norm to{arena.take<float>(all), arena.take<float>(all)};
    if (arena.failed) return to;
    for (long i = 0; i < all; i++) {
        to.weight[i] = i < width ? norm.weight[i] : 0.0f;
        to.bias[i] = i < width && norm.bias ? norm.bias[i] : 0.0f;
    }
    return to;
}

}  // namespace KERNELS
