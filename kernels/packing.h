// Weights as torch has them, (outputs, inputs), made what products read.
#pragma once

#include "rows.h"

namespace KERNELS {

using bertsmith::Arena;
using bertsmith::Column;
using bertsmith::Failure;
using bertsmith::Matrix;

INLINE void write(float* to, float value) { *to = value; }
INLINE void write(uint8_t* to, float value) { *to = static_cast<uint8_t>(value); }
INLINE void write(int8_t* to, float value) { *to = static_cast<int8_t>(value); }
INLINE void write(int16_t* to, float value) { *to = static_cast<int16_t>(value); }
INLINE void write(bf16* to, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    to->bits = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

INLINE bool in_file(const bs_tensor& tensor) { return tensor.place >= BS_FILE_F32; }

// Bytes of a number.
INLINE size_t size_of(const bs_tensor& tensor) {
    constexpr size_t sizes[] = {0, sizeof(float), 4, 8, 2, 2};
    return sizes[tensor.place];
}

// Bytes that a number takes while it is read: as a float, and as the file has it.
INLINE size_t room_of(const bs_tensor& tensor) {
    if (!in_file(tensor)) return 0;
    return sizeof(float) + (tensor.place == BS_FILE_F32 ? 0 : size_of(tensor));
}

INLINE float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Moves the exponent by a factor, which is right for numbers below the smallest power of 2 too. What is
// not finite stays so.
INLINE float half_float(uint16_t half) {
    constexpr float FACTOR = 5.192296858534828e33f;  // 2^112
    const float value = float_of((half & 0x7FFFu) << 13) * FACTOR;
    const float finite = half & 0x8000u ? -value : value;
    return (half & 0x7C00u) == 0x7C00u ? __builtin_inff() : finite;
}

template <class S, class Use>
void convert_numbers(const char* from, long count, float* to, Use&& use) {
    for (long i = 0; i < count; i++) {
        S value;
        std::memcpy(&value, from + i * sizeof(S), sizeof value);
        to[i] = use(value);
    }
}

INLINE bool all_finite(const float* values, long count) {
    uint32_t found = 0;
    for (long i = 0; i < count; i++) {
        uint32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return !found;
}

// Numbers of a tensor in a file as floats. `memory` has room for them, and behind them for what the file
// holds.
inline Failure read_numbers(const bs_tensor& from, long first, long count, float* memory) {
    const size_t size = size_of(from);
    char* raw = reinterpret_cast<char*>(from.place == BS_FILE_F32 ? memory : memory + count);
    Failure failure = bertsmith::read_file(from.file, from.offset + first * size, raw, count * size);
    if (failure.status) return failure;
    if (from.place == BS_FILE_F64)
        convert_numbers<double>(raw, count, memory, [](double x) { return static_cast<float>(x); });
    if (from.place == BS_FILE_F16) convert_numbers<uint16_t>(raw, count, memory, half_float);
    if (from.place == BS_FILE_BF16)
        convert_numbers<uint16_t>(raw, count, memory, [](uint32_t x) { return float_of(x << 16); });
    if (!all_finite(memory, count)) failure.status = BS_NOT_FINITE;
    return failure;
}

// Inputs that are packed together: of a whole panel they fit into the L1 cache.
constexpr long RUN = 64;

// The weights of a column for a run of inputs, zeros after the last.
INLINE void read_run(const Matrix& matrix, const float* weights, long begin, float* to) {
    const int32_t* sources = matrix.sources + begin;
    const long count = matrix.inputs - begin < RUN ? matrix.inputs - begin : RUN;
    if (count == RUN && sources[0] >= 0 && sources[RUN - 1] == sources[0] + RUN - 1) {
        std::memcpy(to, weights + sources[0], RUN * sizeof(float));
        return;
    }
    for (long k = 0; k < RUN; k++)
        to[k] = k < count && sources[k] >= 0 ? weights[sources[k]] : 0.0f;
}

INLINE float largest_of(const Matrix& matrix, const float* weights) {
    alignas(64) float values[RUN];
    F most = splat(0.0f);
    for (long begin = 0; begin < matrix.inputs; begin += RUN) {
        read_run(matrix, weights, begin, values);
        for (long k = 0; k < RUN; k += LANES) {
            const F value = load(values + k);
            most = max(most, max(value, splat(0.0f) - value));
        }
    }
    return largest(most);
}

// The weights of a panel's columns, null for zeros. Those in a file are read into `memory`, where they are
// still in a cache when they are packed; rows that follow each other by one call.
inline Failure panel_rows(
    const Matrix& matrix, const Column* columns, float* memory, const float* (&rows)[PANEL]
) {
    for (long c = 0, count; c < PANEL; c += count) {
        const bs_tensor* tensor = columns[c].tensor;
        const long first = columns[c].row;
        count = 1;
        rows[c] = nullptr;
        if (!tensor) continue;
        if (!in_file(*tensor)) {
            rows[c] = tensor->values + first * matrix.length;
            continue;
        }
        while (c + count < PANEL && columns[c + count].tensor == tensor &&
               columns[c + count].row == first + count)
            count++;
        Failure failure = read_numbers(*tensor, first * matrix.length, count * matrix.length, memory);
        if (failure.status) {
            failure.tensor = static_cast<int32_t>(c);
            return failure;
        }
        for (long i = 0; i < count; i++, memory += matrix.length) rows[c + i] = memory;
    }
    return {};
}

// Packs a panel. A column's words lie a panel's width apart, so that runs of all columns are
// converted, and then written word by word.
template <class T>
Failure pack_panel(const Matrix& matrix, long panel, float* memory) {
    using W = typename Product<T>::Weight;
    constexpr bool whole = Product<T>::whole_numbers;
    constexpr long WORD_BYTES = PER_WORD<T> * sizeof(W);
    const Weights& to = matrix.to;
    const long filled = to.words * PER_WORD<T>;
    const Column* columns = matrix.columns + panel * PANEL;
    W* values = static_cast<W*>(to.values) + panel * PANEL * filled;
    const float* rows[PANEL];
    float factors[PANEL];
    int32_t sums[PANEL] = {};
    if (const Failure failure = panel_rows(matrix, columns, memory, rows); failure.status) return failure;
    for (long c = 0; c < PANEL; c++) {
        const Column& column = columns[c];
        factors[c] = column.factor;
        to.bias[panel * PANEL + c] = rows[c] ? column.bias * column.factor : 0.0f;
        to.scale[panel * PANEL + c] = 0.0f;
        if (whole && rows[c]) {
            const float most = largest_of(matrix, rows[c]);
            factors[c] = most > 0 ? 127.0f / most : 0.0f;
            to.scale[panel * PANEL + c] = most / 127.0f * column.factor;
        }
    }
    alignas(64) float run[RUN] = {};
    alignas(64) W converted[PANEL][RUN];
    for (long begin = 0; begin < filled; begin += RUN) {
        for (long c = 0; c < PANEL; c++) {
            if (rows[c]) read_run(matrix, rows[c], begin, run);
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
    return {};
}

// Takes memory for `panels` panels of columns.
template <class T>
Weights empty_panels(Arena& arena, int panels, long inputs) {
    const long count = static_cast<long>(panels) * PANEL, depth = up_to(words<T>(inputs), WORDS_TOGETHER<T>);
    Weights to{};
    to.panels = panels;
    to.words = depth;
    to.values = arena.take<typename Product<T>::Weight>(count * depth * PER_WORD<T>);
    to.bias = arena.take<float>(count);
    to.scale = arena.take<float>(count);
    to.sums = arena.take<int32_t>(count);
    return to;
}

// A norm's values, with zeros up to whole vectors.
INLINE Norm packed_norm(Arena& arena, const float* weight, const float* bias, int width) {
    if (!weight) return {nullptr, nullptr};
    const long all = up_to(width, PANEL);
    Norm to{arena.take<float>(all), arena.take<float>(all)};
    if (arena.failed) return to;
    for (long i = 0; i < all; i++) {
        to.weight[i] = i < width ? weight[i] : 0.0f;
        to.bias[i] = i < width && bias ? bias[i] : 0.0f;
    }
    return to;
}

}  // namespace KERNELS
