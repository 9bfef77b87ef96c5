// The cross-entropy of rows of logits and its gradient. Compiled once for each instruction set, with
// KERNELS its namespace and TABLE the name of its table of functions.
#include "encoder.h"
#include "packing.h"

namespace KERNELS {

// e^x for x up to 0, to 2e-7 of itself, and 0 where float32 has no such number. What is not a number
// stays so.
INLINE F exp(F x) {
    // log2(e) in two parts, so that x of any size has an exact remainder
    const F high = splat(1.44269502f), low = splat(1.92596303e-8f);
    x = max(splat(-104.0f), x);
    const F whole = rounded(x * high);
    return exp2<EXACT>(fma(x, low, fma(x, high, splat(0.0f) - whole)), whole);
}

// Values that are summed by themselves first: a sum of fifty thousand would lose two digits.
constexpr int64_t BLOCK = 32 * LANES;

// The logits of a row as floats, with the bias, and -inf up to whole vectors.
template <class T>
static void widen(const T* logits, const float* bias, int64_t classes, float* wide) {
    const int64_t whole = classes / LANES * LANES, all = up_to(classes, LANES);
    const int rest = static_cast<int>(classes - whole);
    if (bias) {
        for (int64_t i = 0; i < whole; i += LANES) store(wide + i, load(logits + i) + load(bias + i));
        if (rest) store(wide + whole, load(logits + whole, rest) + load(bias + whole, rest));
    } else {
        for (int64_t i = 0; i < whole; i += LANES) store(wide + i, load(logits + i));
        if (rest) store(wide + whole, load(logits + whole, rest));
    }
    for (int64_t i = classes; i < all; i++) wide[i] = -__builtin_inff();
}

// Loss and gradient of one row; the gradient is also added to `sums`, if any. `wide` has room for the
// logits as floats, up to whole vectors.
template <class T>
static void row_loss(const bs_losses& call, int64_t row, float* wide, float* sums) {
    constexpr float nothing = -__builtin_inff();
    const int64_t classes = call.classes, label = call.labels[row];
    const int64_t whole = classes / LANES * LANES, all = up_to(classes, LANES);
    const int rest = static_cast<int>(classes - whole);
    widen(static_cast<const T*>(call.logits) + row * call.stride, call.bias, classes, wide);
    const float own = wide[label];
    wide[label] = nothing;
    F most = splat(nothing);
    for (int64_t i = 0; i < all; i += LANES) most = max(most, load(wide + i));
    wide[label] = own;
    const float others = largest(most), top = own > others ? own : others;
    F weights = splat(0.0f);
    for (int64_t begin = 0; begin < all; begin += BLOCK) {
        const int64_t end = begin + BLOCK < all ? begin + BLOCK : all;
        F part = splat(0.0f);
        for (int64_t i = begin; i < end; i += LANES) {
            const F weight = exp(load(wide + i) - splat(top));
            store(wide + i, weight);
            part = part + weight;
        }
        weights = weights + part;
    }
    const float total = sum(weights);
    call.losses[row] = __builtin_logf(total) + top - own;
    call.correct[row] = own > others;
    if (!call.gradient) return;
    auto* gradient = static_cast<T*>(call.gradient) + row * call.stride;
    const F share = splat(1.0f / total);
    if (sums) {
        for (int64_t i = 0; i < whole; i += LANES) {
            const F slope = load(wide + i) * share;
            store(gradient + i, slope);
            store(sums + i, load(sums + i) + slope);
        }
        for (int64_t i = whole; i < classes; i++) sums[i] += wide[i] / total;
        sums[label] -= 1.0f;
    } else {
        for (int64_t i = 0; i < whole; i += LANES) store(gradient + i, load(wide + i) * share);
    }
    if (rest) store(gradient + whole, load(wide + whole) * share, rest);
    write(gradient + label, wide[label] / total - 1.0f);
}

static void rows(const bs_losses& call, int64_t group, float* wide) {
    const int64_t begin = call.rows * group / call.groups, end = call.rows * (group + 1) / call.groups;
    float* sums = call.sums ? call.sums + group * call.classes : nullptr;
    if (sums) __builtin_memset(sums, 0, static_cast<size_t>(call.classes) * sizeof(float));
#ifdef HAS_BF16
    if (call.bf16) {
        for (int64_t row = begin; row < end; row++) row_loss<bf16>(call, row, wide, sums);
        return;
    }
#endif
    for (int64_t row = begin; row < end; row++) row_loss<float>(call, row, wide, sums);
}

}  // namespace KERNELS

namespace bertsmith {
const CrossEntropy TABLE = KERNELS::rows;
}
