// What is done to single rows: functions of one value, layer norm, and conversion for a product.
#pragma once

#include "products.h"

namespace KERNELS {

// 2^x, to 1e-7 of itself: Chebyshev interpolation on [-1/2, 1/2], scaled by the whole part.
INLINE F exp2(F x) {
    x = max(min(x, splat(127.0f)), splat(-200.0f));
    const F whole = rounded(x), f = x - whole;
    F y = splat(1.33908633e-3f);
    y = fma(y, f, splat(9.67603177e-3f));
    y = fma(y, f, splat(5.55035695e-2f));
    y = fma(y, f, splat(2.40221068e-1f));
    y = fma(y, f, splat(6.93147182e-1f));
    y = fma(y, f, splat(1.00000012f));
    return scaled(y, whole);
}

// erf(x) to a few units in the last place: a rational function, the limits beyond it.
INLINE F erf(F x) {
    x = max(min(x, splat(3.8324f)), splat(-3.8324f));
    const F s = x * x;
    F p = splat(-2.72614225801306e-10f);
    p = fma(p, s, splat(2.77068142495902e-08f));
    p = fma(p, s, splat(-2.10102402082508e-06f));
    p = fma(p, s, splat(-5.69250639462346e-05f));
    p = fma(p, s, splat(-7.34990630326855e-04f));
    p = fma(p, s, splat(-2.95459980854025e-03f));
    p = fma(p, s, splat(-1.60960333262415e-02f));
    F q = splat(-1.45660718464996e-05f);
    q = fma(q, s, splat(-2.13374055278905e-04f));
    q = fma(q, s, splat(-1.68282697438203e-03f));
    q = fma(q, s, splat(-7.37332916720468e-03f));
    q = fma(q, s, splat(-1.42647390514189e-02f));
    return x * p / q;
}

INLINE F exact_gelu(F x) {
    const F half = x * splat(0.5f);
    return fma(half, erf(x * splat(0.70710678f)), half);
}

// x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
INLINE F tanh_gelu(F x) {
    const F u = fma(x * x * splat(0.044715f), x, x);
    // -2 sqrt(2 / pi) log2(e)
    return x / (splat(1.0f) + exp2(u * splat(-2.3022082f)));
}

using bertsmith::Norm;

// Layer norm of a row of `width` values; what lies behind them, up to whole vectors, becomes zero.
INLINE void normalise(const float* x, float* y, int width, const Norm& norm, float epsilon) {
    F total = splat(0.0f);
    for (int i = 0; i < width; i += LANES) total = total + load(x + i, width - i);
    const F mean = splat(sum(total) / static_cast<float>(width));
    F squares = splat(0.0f);
    for (int i = 0; i < width; i += LANES) {
        const F distance = keep(load(x + i) - mean, width - i);
        squares = fma(distance, distance, squares);
    }
    const float variance = sum(squares) / static_cast<float>(width);
    const F factor = splat(1.0f / __builtin_sqrtf(variance + epsilon));
    for (int i = 0; i < width; i += LANES) {
        const F scaled = (load(x + i) - mean) * factor;
        store(y + i, fma(scaled, load(norm.weight + i), load(norm.bias + i)));
    }
}

// Rows of floats or bf16 made what a product reads. `width` is a multiple of LANES.
template <class T, class S>
INLINE void convert(const S* x, int width, const Rows<T>& to, int row) {
    T* out = to.values + row * to.stride;
    for (int i = 0; i < width; i += LANES) store(out + i, load(x + i));
}

// x = scale (value - zero), zero and the values from 0 to 255: the range of the row and 0.
template <class S>
INLINE void convert(const S* x, int width, const Rows<Activation8>& to, int row) {
    F least = splat(0.0f), most = splat(0.0f);
    for (int i = 0; i < width; i += LANES) {
        least = min(least, load(x + i));
        most = max(most, load(x + i));
    }
    const float low = smallest(least), range = largest(most) - low;
    const float inverse = range > 0 ? 255.0f / range : 0.0f;
    const int32_t zero = static_cast<int32_t>(-low * inverse + 0.5f);
    to.scale[row] = range / 255.0f;
    to.zero[row] = zero;
    // whole numbers: the sum is exact, the limits are those of a byte
    const F factor = splat(inverse), shift = splat(static_cast<float>(zero));
    Activation8* out = to.values + row * to.stride;
    for (int i = 0; i < width; i += LANES) {
        const F value = rounded(load(x + i) * factor) + shift;
        store(out + i, to_int(max(min(value, splat(255.0f)), splat(0.0f))));
    }
}

}  // namespace KERNELS
