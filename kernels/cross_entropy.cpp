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

// Loss and gradient of one row. `wide` has room for the logits as floats, up to whole vectors.
template <class T>
static void row_loss(const bs_losses& call, int64_t row, float* wide) {
    constexpr float nothing = -__builtin_inff();
    const auto* logits = static_cast<const T*>(call.logits) + row * call.stride;
    const int64_t classes = call.classes, label = call.labels[row];
    const int64_t whole = classes / LANES * LANES, all = up_to(classes, LANES);
    for (int64_t i = 0; i < whole; i += LANES) store(wide + i, load(logits + i));
    if (whole < all) {
        store(wide + whole, load(logits + whole, static_cast<int>(classes - whole)));
        for (int64_t i = classes; i < all; i++) wide[i] = nothing;
    }
    const float own = wide[label];
    wide[label] = nothing;
    F most = splat(nothing);
    for (int64_t i = 0; i < all; i += LANES) most = max(most, load(wide + i));
    wide[label] = own;
    const float others = largest(most), top = own > others ? own : others;
    F sums = splat(0.0f);
    for (int64_t begin = 0; begin < all; begin += BLOCK) {
        const int64_t end = begin + BLOCK < all ? begin + BLOCK : all;
        F part = splat(0.0f);
        for (int64_t i = begin; i < end; i += LANES) {
            const F weight = exp(load(wide + i) - splat(top));
            store(wide + i, weight);
            part = part + weight;
        }
        sums = sums + part;
    }
    const float total = sum(sums);
    call.losses[row] = __builtin_logf(total) + top - own;
    call.correct[row] = own > others;
    if (!call.gradient) return;
    auto* gradient = static_cast<T*>(call.gradient) + row * call.stride;
    const F share = splat(1.0f / total);
    for (int64_t i = 0; i < whole; i += LANES) store(gradient + i, load(wide + i) * share);
    if (whole < all) store(gradient + whole, load(wide + whole) * share, static_cast<int>(classes - whole));
    write(gradient + label, wide[label] / total - 1.0f);
}

static void rows(const bs_losses& call, int64_t begin, int64_t end, float* wide) {
#ifdef HAS_BF16
    if (call.bf16) {
        for (int64_t row = begin; row < end; row++) row_loss<bf16>(call, row, wide);
        return;
    }
#endif
    for (int64_t row = begin; row < end; row++) row_loss<float>(call, row, wide);
}

}  // namespace KERNELS

namespace bertsmith {
const CrossEntropy TABLE = KERNELS::rows;
}
