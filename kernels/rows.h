// What is done to single rows: functions of one value, layer norm, and conversion for a product.
#pragma once

#include "products.h"

namespace KERNELS {

// What a function may cost: EXACT is for float32, to a few units in the last place; ROUGH is for
// values that become bf16 or int8, well below what these round off.
enum Accuracy { EXACT, ROUGH };

template <class T>
constexpr Accuracy ACCURACY = sizeof(T) == sizeof(float) ? EXACT : ROUGH;

// A polynomial, the coefficient of the highest power first.
template <int N>
INLINE F polynomial(F x, const float (&coefficients)[N]) {
    F y = splat(coefficients[0]);
#pragma GCC unroll 8
    for (int i = 1; i < N; i++) y = fma(y, x, splat(coefficients[i]));
    return y;
}

// 2^x for x up to 127, to 1e-7 of itself or 1e-4: a Chebyshev interpolation on [-1/2, 1/2], scaled by
// the whole part. Of a part and a whole number, or of their sum.
template <Accuracy accuracy>
INLINE F exp2(F part, F whole) {
    constexpr float exact[] = {1.33908633e-3f, 9.67603177e-3f, 5.55035695e-2f,
                               2.40221068e-1f, 6.93147182e-1f, 1.00000012f};
    constexpr float rough[] = {5.58382829e-2f, 2.42639479e-1f, 6.93136734e-1f, 9.99924557e-1f};
    return scaled(accuracy == EXACT ? polynomial(part, exact) : polynomial(part, rough), whole);
}

template <Accuracy accuracy>
INLINE F exp2(F x) {
    const F whole = rounded(x);
    return exp2<accuracy>(x - whole, whole);
}

// erf(x), a rational function, for |x| below the value at which it is 1 in float32.
INLINE F erf(F x) {
    constexpr float above[] = {-2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f,
                               -5.69250639462346e-05f, -7.34990630326855e-04f,
                               -2.95459980854025e-03f, -1.60960333262415e-02f};
    constexpr float below[] = {-1.45660718464996e-05f, -2.13374055278905e-04f,
                               -1.68282697438203e-03f, -7.37332916720468e-03f,
                               -1.42647390514189e-02f};
    x = max(min(x, splat(3.8324f)), splat(-3.8324f));
    return x * polynomial(x * x, above) / polynomial(x * x, below);
}

// x (1/2 + an odd polynomial of x), the limits beyond 4: within 2e-4 of the GELU below |x| = 5.
INLINE F rough_gelu(F x, const float (&coefficients)[8]) {
    const F within = max(min(x, splat(4.0f)), splat(-4.0f));
    return x * fma(within, polynomial(within * within, coefficients), splat(0.5f));
}

template <Accuracy accuracy>
INLINE F exact_gelu(F x) {
    if (accuracy == ROUGH) {
        constexpr float fitted[] = {-1.30129377e-9f, 1.04196005e-7f, -3.65713199e-6f, 7.48550365e-5f,
                                    -1.00649035e-3f, 9.50539816e-3f, -6.58878428e-2f, 3.98673394e-1f};
        return rough_gelu(x, fitted);
    }
    const F half = x * splat(0.5f);
    return fma(half, erf(x * splat(0.70710678f)), half);
}

// x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <Accuracy accuracy>
INLINE F tanh_gelu(F x) {
    if (accuracy == ROUGH) {
        constexpr float fitted[] = {-1.45868625e-9f, 1.15092843e-7f, -3.96607472e-6f, 7.94258698e-5f,
                                    -1.04332420e-3f, 9.65433110e-3f, -6.60984091e-2f, 3.98616982e-1f};
        return rough_gelu(x, fitted);
    }
    const F u = fma(x * x * splat(0.044715f), x, x);
    // -2 sqrt(2 / pi) log2(e)
    return x / (splat(1.0f) + exp2<EXACT>(min(u * splat(-2.3022082f), splat(127.0f))));
}

using bertsmith::Norm;

// Layer norm of a row of `width` values; what lies behind them, up to whole vectors, becomes zero.
INLINE void normalise(const float* x, float* y, int width, const Norm& norm, float epsilon) {
    const int whole = width / LANES * LANES, rest = width - whole;
    F total = rest ? load(x + whole, rest) : splat(0.0f);
    for (int i = 0; i < whole; i += LANES) total = total + load(x + i);
    const F mean = splat(sum(total) / static_cast<float>(width));
    F squares = splat(0.0f);
    if (rest) {
        const F distance = keep(load(x + whole) - mean, rest);
        squares = distance * distance;
    }
    for (int i = 0; i < whole; i += LANES) {
        const F distance = load(x + i) - mean;
        squares = fma(distance, distance, squares);
    }
    const float variance = sum(squares) / static_cast<float>(width);
    const F factor = splat(1.0f / __builtin_sqrtf(variance + epsilon));
    for (int i = 0; i < width; i += LANES) {
        const F scaled = (load(x + i) - mean) * factor;
        store(y + i, fma(scaled, load(norm.weight + i), load(norm.bias + i)));
    }
}

// Rows of floats or bf16 made what a product reads. `width` is a multiple of LANES; what is behind it, up
// to the end of the cache line, becomes zero where AMX multiplies it.
template <class T, class S>
INLINE void convert(const S* x, int width, const Rows<T>& to, int row) {
    T* out = to.values + row * to.stride;
    for (int i = 0; i < width; i += LANES) store(out + i, load(x + i));
    if (BY_AMX<T> && width % (WORDS_TOGETHER<T> * PER_WORD<T>)) store(out + width, splat(0.0f));
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
