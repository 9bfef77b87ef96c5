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

// A matrix that is packed: row k of it is input sources[k], -1 for zeros. Sources count up but for
// these.
struct Packed {
    const Column* columns;
    const int32_t* sources;
    long inputs;
    const Weights* to;
};

// Inputs that are packed together: of a whole panel they fit into the L1 cache.
constexpr long RUN = 64;

// The weights of a column for a run of inputs, zeros after the last.
INLINE void read_run(const Packed& matrix, const Column& column, long begin, float* to) {
    const int32_t* sources = matrix.sources + begin;
    const long count = matrix.inputs - begin < RUN ? matrix.inputs - begin : RUN;
    if (count == RUN && sources[0] >= 0 && sources[RUN - 1] == sources[0] + RUN - 1) {
        std::memcpy(to, column.weight + sources[0], RUN * sizeof(float));
        return;
    }
    for (long k = 0; k < RUN; k++)
        to[k] = k < count && sources[k] >= 0 ? column.weight[sources[k]] : 0.0f;
}

INLINE float largest_of(const Packed& matrix, const Column& column) {
    alignas(64) float values[RUN];
    F most = splat(0.0f);
    for (long begin = 0; begin < matrix.inputs; begin += RUN) {
        read_run(matrix, column, begin, values);
        for (long k = 0; k < RUN; k += LANES) {
            const F value = load(values + k);
            most = max(most, max(value, splat(0.0f) - value));
        }
    }
    return largest(most);
}

// Packs a panel. A column's words lie a panel's width apart, so that runs of all columns are
// converted, and then written word by word.
template <class T>
void pack_panel(const Packed& matrix, long panel) {
    using W = typename Product<T>::Weight;
    constexpr bool whole = Product<T>::whole_numbers;
    constexpr long WORD_BYTES = PER_WORD<T> * sizeof(W);
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
            const float most = largest_of(matrix, column);
            factors[c] = most > 0 ? 127.0f / most : 0.0f;
            to.scale[panel * PANEL + c] = most / 127.0f * column.factor;
        }
    }
    alignas(64) float run[RUN] = {};
    alignas(64) W converted[PANEL][RUN];
    for (long begin = 0; begin < filled; begin += RUN) {
        for (long c = 0; c < PANEL; c++) {
            if (columns[c].weight) read_run(matrix, columns[c], begin, run);
            else std::memset(run, 0, sizeof run);
            for (long k = 0; k < RUN; k++) {
                float value = run[k] * factors[c];
                if (whole) value = __builtin_rintf(value), sums[c] += static_cast<int32_t>(value);
                write(converted[c] + k, value);
            }
        }
        const long end = begin + RUN < filled ? RUN : filled - begin;
        W* out = values + begin * PANEL;
        for (long k = 0; k < end; k += PER_WORD<T>)
            for (long c = 0; c < PANEL; c++, out += PER_WORD<T>)
                std::memcpy(out, converted[c] + k, WORD_BYTES);
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
