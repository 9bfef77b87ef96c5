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

// Packs `panels` panels of columns. Row k of the packed matrix is input sources[k], -1 for zeros.
template <class T>
Weights pack(Arena& arena, const Column* columns, int panels, const int32_t* sources, long inputs) {
    using W = typename Product<T>::Weight;
    constexpr bool whole = Product<T>::whole_numbers;
    const long count = static_cast<long>(panels) * PANEL, depth = words<T>(inputs);
    Weights to{};
    to.panels = panels;
    to.words = depth;
    W* values = arena.take<W>(count * depth * PER_WORD<T>);
    to.values = values;
    to.bias = arena.take<float>(count);
    to.scale = arena.take<float>(count);
    to.sums = arena.take<int32_t>(count);
    if (arena.failed) return to;
    for (long c = 0; c < count; c++) {
        const Column& column = columns[c];
        W* out = values + (c / PANEL * depth * PANEL + c % PANEL) * PER_WORD<T>;
        float factor = column.factor;
        int32_t sum = 0;
        to.bias[c] = column.weight ? column.bias * column.factor : 0.0f;
        to.scale[c] = 0.0f;
        if (whole && column.weight) {
            const float most = largest_of(column, sources, inputs);
            factor = most > 0 ? 127.0f / most : 0.0f;
            to.scale[c] = most / 127.0f * column.factor;
        }
        for (long k = 0; k < depth * PER_WORD<T>; k++) {
            float value = 0.0f;
            if (column.weight && k < inputs && sources[k] >= 0)
                value = column.weight[sources[k]] * factor;
            if (whole) value = __builtin_rintf(value), sum += static_cast<int32_t>(value);
            write(out + (k / PER_WORD<T> * PANEL) * PER_WORD<T> + k % PER_WORD<T>, value);
        }
        to.sums[c] = sum;
    }
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
