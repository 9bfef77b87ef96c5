// Vectors of one instruction set: the few operations that the kernels are written in.
//
// encoder.cpp is compiled once for each instruction set, with KERNELS naming the namespace that all
// of its code lies in. No function of the standard library's templates may be used below that
// namespace: the linker would keep one copy of it, compiled for any of the instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

namespace KERNELS {

struct bf16 {
    uint16_t bits;
};

// Lanes of four bytes, and rows of two vectors each whose sums fill the registers.
#ifdef __AVX512F__
constexpr int LANES = 16, REGISTER_ROWS = 12;
using F = __m512;
using I = __m512i;
#else
constexpr int LANES = 8, REGISTER_ROWS = 6;
using F = __m256;
using I = __m256i;
#endif
// columns of a panel of packed weights
constexpr int PANEL = 2 * LANES;

#ifdef __AVX512F__

INLINE __mmask16 first(int n) { return n >= LANES ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1); }

INLINE F splat(float x) { return _mm512_set1_ps(x); }
INLINE I splat(int32_t x) { return _mm512_set1_epi32(x); }
INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void store(float* p, F x) { _mm512_storeu_ps(p, x); }
// the first n lanes, the others zero or `rest`
INLINE F load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
INLINE F load(const float* p, int n, F rest) { return _mm512_mask_loadu_ps(rest, first(n), p); }
INLINE void store(float* p, F x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
INLINE F keep(F x, int n) { return _mm512_maskz_mov_ps(first(n), x); }
INLINE I load_words(const void* p) { return _mm512_loadu_si512(p); }
INLINE void store_words(void* p, I x) { _mm512_storeu_si512(p, x); }
INLINE I broadcast(const void* p) {
    int32_t word;
    std::memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

// Asks for weights before they are needed: on Intel an encoder in fp32 gains an eighth by it, as a panel of
// floats is as large as the L1 cache. On AMD nothing was gained.
INLINE void read_ahead(const char* p) {
    _mm_prefetch(p + 6144, _MM_HINT_T0);
    _mm_prefetch(p + 6208, _MM_HINT_T0);
}

INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
INLINE float sum(F x) { return _mm512_reduce_add_ps(x); }
INLINE float largest(F x) { return _mm512_reduce_max_ps(x); }
INLINE float smallest(F x) { return _mm512_reduce_min_ps(x); }
INLINE F to_float(I x) { return _mm512_cvtepi32_ps(x); }
INLINE I to_int(F x) { return _mm512_cvtps_epi32(x); }
INLINE I multiply(I a, I b) { return _mm512_mullo_epi32(a, b); }
INLINE I subtract(I a, I b) { return _mm512_sub_epi32(a, b); }
INLINE I add(I a, I b) { return _mm512_add_epi32(a, b); }
// zeros come in at the left
template <int N>
INLINE I shifted_right(I x) {
    return _mm512_srli_epi32(x, N);
}
// For each byte an integer, all bits set where the byte, with its sign, is less.
INLINE void store_less(int16_t* p, I bytes, I limits) {
    const __mmask64 less = _mm512_cmplt_epi8_mask(bytes, limits);
    for (int i = 0; i < 2; i++) store_words(p + 32 * i, _mm512_movm_epi16(less >> 32 * i));
}
INLINE void store_less(int32_t* p, I bytes, I limits) {
    const __mmask64 less = _mm512_cmplt_epi8_mask(bytes, limits);
    for (int i = 0; i < 4; i++) store_words(p + 16 * i, _mm512_movm_epi32(less >> 16 * i));
}
INLINE F rounded(F x) { return _mm512_roundscale_ps(x, 0); }
// x * 2^n for whole n, 0 where n is very small
INLINE F scaled(F x, F n) { return _mm512_scalef_ps(x, n); }

#else

alignas(64) static const int32_t ONES_THEN_ZEROS[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

INLINE __m256i first(int n) {
    const int from = n >= LANES ? 0 : LANES - n;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(ONES_THEN_ZEROS + from));
}

INLINE F splat(float x) { return _mm256_set1_ps(x); }
INLINE I splat(int32_t x) { return _mm256_set1_epi32(x); }
INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
INLINE void store(float* p, F x) { _mm256_storeu_ps(p, x); }
INLINE F load(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
INLINE F load(const float* p, int n, F rest) {
    const __m256i mask = first(n);
    return _mm256_blendv_ps(rest, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
INLINE void store(float* p, F x, int n) { _mm256_maskstore_ps(p, first(n), x); }
INLINE F keep(F x, int n) { return _mm256_and_ps(x, _mm256_castsi256_ps(first(n))); }
INLINE I load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE void store_words(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
INLINE I broadcast(const void* p) {
    int32_t word;
    std::memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}

// Asks for weights before they are needed: the processor's own reading ahead ends with each page.
INLINE void read_ahead(const char* p) { _mm_prefetch(p + 2048, _MM_HINT_T0); }

INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
INLINE F halves(F x) { return _mm256_permute2f128_ps(x, x, 1); }
INLINE F pairs(F x) { return _mm256_permute_ps(x, 0x4E); }
INLINE F neighbours(F x) { return _mm256_permute_ps(x, 0xB1); }
INLINE float sum(F x) {
    x = x + halves(x);
    x = x + pairs(x);
    return _mm256_cvtss_f32(x + neighbours(x));
}
INLINE float largest(F x) {
    x = max(x, halves(x));
    x = max(x, pairs(x));
    return _mm256_cvtss_f32(max(x, neighbours(x)));
}
INLINE float smallest(F x) { return -largest(splat(0.0f) - x); }
INLINE F to_float(I x) { return _mm256_cvtepi32_ps(x); }
INLINE I to_int(F x) { return _mm256_cvtps_epi32(x); }
INLINE I multiply(I a, I b) { return _mm256_mullo_epi32(a, b); }
INLINE I subtract(I a, I b) { return _mm256_sub_epi32(a, b); }
INLINE I add(I a, I b) { return _mm256_add_epi32(a, b); }
template <int N>
INLINE I shifted_right(I x) {
    return _mm256_srli_epi32(x, N);
}
INLINE void store_less(int16_t* p, I bytes, I limits) {
    const __m256i less = _mm256_cmpgt_epi8(limits, bytes);
    store_words(p, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(less)));
    store_words(p + 16, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(less, 1)));
}
INLINE void store_less(int32_t* p, I bytes, I limits) {
    const __m256i less = _mm256_cmpgt_epi8(limits, bytes);
    const __m128i low = _mm256_castsi256_si128(less), high = _mm256_extracti128_si256(less, 1);
    store_words(p, _mm256_cvtepi8_epi32(low));
    store_words(p + 8, _mm256_cvtepi8_epi32(_mm_srli_si128(low, 8)));
    store_words(p + 16, _mm256_cvtepi8_epi32(high));
    store_words(p + 24, _mm256_cvtepi8_epi32(_mm_srli_si128(high, 8)));
}
INLINE F rounded(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE F scaled(F x, F n) {
    const I exponent = add(to_int(max(n, splat(-127.0f))), splat(127));
    return x * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

#endif

#ifdef __AVX512BF16__
#define HAS_BF16 1
INLINE F load(const bf16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
INLINE F load(const bf16* p, int n) {
    const __m256i half = _mm256_maskz_loadu_epi16(first(n), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
INLINE __m256i to_bf16(F x) { return (__m256i)_mm512_cvtneps_pbh(x); }
INLINE void store(bf16* p, F x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x)); }
INLINE void store(bf16* p, F x, int n) { _mm256_mask_storeu_epi16(p, first(n), to_bf16(x)); }
#endif

// What int8 products read: bytes where there is an instruction for them, else 16-bit numbers.
#ifdef __AVX512VNNI__
using Activation8 = uint8_t;
using Weight8 = int8_t;
INLINE void store(uint8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtusepi32_epi8(x));
}
#else
using Activation8 = int16_t;
#ifdef __AVX512F__
using Weight8 = int16_t;
INLINE void store(int16_t* p, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
}
#else
// widened as they are loaded: as bytes they need half the memory, and reading them bounds short texts
using Weight8 = int8_t;
INLINE I load_bytes(const void* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
INLINE void store(int16_t* p, I x) {
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(x, x), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(both));
}
#endif
#endif

}  // namespace KERNELS
