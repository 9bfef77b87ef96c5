// AVX-512, bf16, VNNI and AMX in plain C++: what the kernels ask of them, lane by lane.
//
// Included before all else (-include), it lets a processor with AVX2 alone run the code that is
// written for AVX-512, so that it can be tested there. Where the instruction rounds, this rounds as
// the manual of the instruction says; a sum of two products of bf16 is rounded after each, those of
// AMX are summed by even and odd places first. Linux is not asked for AMX.
#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>

namespace emulated {

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Words __attribute__((vector_size(64)));

#define LANEWISE static inline __attribute__((always_inline))
#define EACH for (int i = 0; i < 16; i++)
#define F(x) ((Floats)(x))[i]
#define W(x) ((Words)(x))[i]

template <class To, class From>
LANEWISE To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

LANEWISE float half(uint32_t bf16) { return bits<float>(bf16 << 16); }

LANEWISE uint16_t to_half(float x) {
    const uint32_t all = bits<uint32_t>(x);
    if ((all & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(all >> 16 | 0x40);
    return static_cast<uint16_t>((all + 0x7FFF + (all >> 16 & 1)) >> 16);
}

struct Halves {
    uint16_t lane[16];
};

struct Bytes {
    uint8_t lane[16];
};

LANEWISE __m512 set1_ps(float x) { Floats r; EACH r[i] = x; return (__m512)r; }
LANEWISE __m512i set1_epi32(int32_t x) { Words r; EACH r[i] = x; return (__m512i)r; }
LANEWISE __m512 loadu_ps(const void* p) { __m512 r; std::memcpy(&r, p, 64); return r; }
LANEWISE __m512i loadu_si512(const void* p) { __m512i r; std::memcpy(&r, p, 64); return r; }
LANEWISE void storeu_ps(void* p, __m512 x) { std::memcpy(p, &x, 64); }
LANEWISE void storeu_si512(void* p, __m512i x) { std::memcpy(p, &x, 64); }
LANEWISE __m512 mask_loadu_ps(__m512 rest, unsigned mask, const float* p) {
    Floats r = (Floats)rest;
    EACH if (mask >> i & 1) r[i] = p[i];
    return (__m512)r;
}
LANEWISE __m512 maskz_loadu_ps(unsigned mask, const float* p) { return mask_loadu_ps(set1_ps(0), mask, p); }
LANEWISE void mask_storeu_ps(float* p, unsigned mask, __m512 x) { EACH if (mask >> i & 1) p[i] = F(x); }
LANEWISE __m512 maskz_mov_ps(unsigned mask, __m512 x) {
    Floats r;
    EACH r[i] = mask >> i & 1 ? F(x) : 0.0f;
    return (__m512)r;
}
LANEWISE __m256i maskz_loadu_epi16(unsigned mask, const void* p) {
    Halves r;
    EACH r.lane[i] = mask >> i & 1 ? static_cast<const uint16_t*>(p)[i] : 0;
    return bits<__m256i>(r);
}
LANEWISE void mask_storeu_epi16(void* p, unsigned mask, __m256i x) {
    EACH if (mask >> i & 1) static_cast<uint16_t*>(p)[i] = bits<Halves>(x).lane[i];
}

LANEWISE __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
    Floats r;
    EACH r[i] = __builtin_fmaf(F(a), F(b), F(c));
    return (__m512)r;
}
LANEWISE __m512 max_ps(__m512 a, __m512 b) { Floats r; EACH r[i] = F(a) > F(b) ? F(a) : F(b); return (__m512)r; }
LANEWISE __m512 min_ps(__m512 a, __m512 b) { Floats r; EACH r[i] = F(a) < F(b) ? F(a) : F(b); return (__m512)r; }
LANEWISE float reduce_add_ps(__m512 x) {
    float sums[16];
    std::memcpy(sums, &x, 64);
    for (int step = 8; step; step /= 2)
        for (int i = 0; i < step; i++) sums[i] += sums[i + step];
    return sums[0];
}
LANEWISE float reduce_max_ps(__m512 x) { float r = ((Floats)x)[0]; EACH r = F(x) > r ? F(x) : r; return r; }
LANEWISE float reduce_min_ps(__m512 x) { float r = ((Floats)x)[0]; EACH r = F(x) < r ? F(x) : r; return r; }
LANEWISE __m512 roundscale_ps(__m512 x, int) { Floats r; EACH r[i] = __builtin_rintf(F(x)); return (__m512)r; }
LANEWISE __m512 scalef_ps(__m512 x, __m512 n) {
    Floats r;
    EACH r[i] = __builtin_scalbnf(F(x), F(n) < -1000 ? -1000 : static_cast<int>(__builtin_floorf(F(n))));
    return (__m512)r;
}

LANEWISE __m512 cvtepi32_ps(__m512i x) { Floats r; EACH r[i] = static_cast<float>(W(x)); return (__m512)r; }
LANEWISE __m512i cvtps_epi32(__m512 x) {
    Words r;
    EACH r[i] = static_cast<int32_t>(__builtin_rintf(F(x)));
    return (__m512i)r;
}
LANEWISE __m512i cvtepu16_epi32(__m256i x) { Words r; EACH r[i] = bits<Halves>(x).lane[i]; return (__m512i)r; }
LANEWISE __m256i cvtepi32_epi16(__m512i x) {
    Halves r;
    EACH r.lane[i] = static_cast<uint16_t>(W(x));
    return bits<__m256i>(r);
}
LANEWISE __m128i cvtusepi32_epi8(__m512i x) {
    Bytes r;
    EACH r.lane[i] = static_cast<uint8_t>(static_cast<uint32_t>(W(x)) > 255 ? 255 : W(x));
    return bits<__m128i>(r);
}
LANEWISE __m256i cvtneps_pbh(__m512 x) { Halves r; EACH r.lane[i] = to_half(F(x)); return bits<__m256i>(r); }
LANEWISE __m512 castsi512_ps(__m512i x) { return (__m512)x; }

LANEWISE __m512i add_epi32(__m512i a, __m512i b) { return (__m512i)((Words)a + (Words)b); }
LANEWISE __m512i sub_epi32(__m512i a, __m512i b) { return (__m512i)((Words)a - (Words)b); }
LANEWISE __m512i mullo_epi32(__m512i a, __m512i b) { return (__m512i)((Words)a * (Words)b); }
LANEWISE __m512i or_si512(__m512i a, __m512i b) { return (__m512i)((Words)a | (Words)b); }
LANEWISE __m512i srli_epi32(__m512i x, int n) {
    Words r;
    EACH r[i] = static_cast<int32_t>(static_cast<uint32_t>(W(x)) >> n);
    return (__m512i)r;
}
LANEWISE uint64_t cmplt_epi8_mask(__m512i a, __m512i b) {
    int8_t left[64], right[64];
    std::memcpy(left, &a, 64);
    std::memcpy(right, &b, 64);
    uint64_t mask = 0;
    for (int i = 0; i < 64; i++) mask |= static_cast<uint64_t>(left[i] < right[i]) << i;
    return mask;
}
LANEWISE __m512i movm_epi16(uint32_t mask) {
    int16_t r[32];
    for (int i = 0; i < 32; i++) r[i] = mask >> i & 1 ? -1 : 0;
    return bits<__m512i>(r);
}
LANEWISE __m512i movm_epi32(uint16_t mask) {
    Words r;
    EACH r[i] = mask >> i & 1 ? -1 : 0;
    return (__m512i)r;
}
LANEWISE __m512i slli_epi32(__m512i x, int n) {
    Words r;
    EACH r[i] = static_cast<int32_t>(static_cast<uint32_t>(W(x)) << n);
    return (__m512i)r;
}

LANEWISE __m512 dpbf16_ps(__m512 sums, __m512i a, __m512i b) {
    Floats r = (Floats)sums;
    EACH {
        const uint32_t x = static_cast<uint32_t>(W(a)), y = static_cast<uint32_t>(W(b));
        r[i] = r[i] + half(x >> 16) * half(y >> 16);
        r[i] = r[i] + half(x & 0xFFFF) * half(y & 0xFFFF);
    }
    return (__m512)r;
}
LANEWISE __m512i dpbusd_epi32(__m512i sums, __m512i a, __m512i b) {
    Words r = (Words)sums;
    EACH for (int byte = 0; byte < 32; byte += 8)
        r[i] += static_cast<uint8_t>(W(a) >> byte) * static_cast<int8_t>(W(b) >> byte);
    return (__m512i)r;
}
LANEWISE __m512i madd_epi16(__m512i a, __m512i b) {
    Words r;
    EACH r[i] = static_cast<int16_t>(W(a)) * static_cast<int16_t>(W(b)) + (W(a) >> 16) * (W(b) >> 16);
    return (__m512i)r;
}

// In each 128 bits, items of `size` words of a and b in turn: those of the lower half or the upper.
LANEWISE __m512i unpack(__m512i a, __m512i b, int size, int upper) {
    Words r;
    EACH {
        const int word = i % 4, item = word / (2 * size), within = word % size;
        const int from = i / 4 * 4 + 2 * upper + item * size + within;
        r[i] = word / size % 2 ? ((Words)b)[from] : ((Words)a)[from];
    }
    return (__m512i)r;
}
LANEWISE __m512i unpacklo_epi32(__m512i a, __m512i b) { return unpack(a, b, 1, 0); }
LANEWISE __m512i unpackhi_epi32(__m512i a, __m512i b) { return unpack(a, b, 1, 1); }
LANEWISE __m512i unpacklo_epi64(__m512i a, __m512i b) { return unpack(a, b, 2, 0); }
LANEWISE __m512i unpackhi_epi64(__m512i a, __m512i b) { return unpack(a, b, 2, 1); }
LANEWISE __m512i shuffle_i32x4(__m512i a, __m512i b, int which) {
    Words r;
    EACH {
        const int quarter = i / 4, from = 4 * (which >> 2 * quarter & 3) + i % 4;
        r[i] = quarter < 2 ? ((Words)a)[from] : ((Words)b)[from];
    }
    return (__m512i)r;
}

#undef LANEWISE
#undef EACH
#undef F
#undef W

}  // namespace emulated

#define _mm512_add_epi32 emulated::add_epi32
#define _mm512_castsi512_ps emulated::castsi512_ps
#define _mm512_cvtepi32_epi16 emulated::cvtepi32_epi16
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_cvtneps_pbh emulated::cvtneps_pbh
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtusepi32_epi8 emulated::cvtusepi32_epi8
#define _mm512_dpbf16_ps emulated::dpbf16_ps
#define _mm512_dpbusd_epi32 emulated::dpbusd_epi32
#define _mm512_fmadd_ps emulated::fmadd_ps
#define _mm512_loadu_ps emulated::loadu_ps
#define _mm512_loadu_si512 emulated::loadu_si512
#define _mm512_madd_epi16 emulated::madd_epi16
#define _mm512_mask_loadu_ps emulated::mask_loadu_ps
#define _mm512_mask_storeu_ps emulated::mask_storeu_ps
#define _mm512_maskz_loadu_ps emulated::maskz_loadu_ps
#define _mm512_maskz_mov_ps emulated::maskz_mov_ps
#define _mm512_max_ps emulated::max_ps
#define _mm512_min_ps emulated::min_ps
#define _mm512_mullo_epi32 emulated::mullo_epi32
#define _mm512_or_si512 emulated::or_si512
#define _mm512_reduce_add_ps emulated::reduce_add_ps
#define _mm512_reduce_max_ps emulated::reduce_max_ps
#define _mm512_reduce_min_ps emulated::reduce_min_ps
#define _mm512_roundscale_ps emulated::roundscale_ps
#define _mm512_scalef_ps emulated::scalef_ps
#define _mm512_set1_epi32 emulated::set1_epi32
#define _mm512_set1_ps emulated::set1_ps
#define _mm512_shuffle_i32x4 emulated::shuffle_i32x4
#define _mm512_slli_epi32 emulated::slli_epi32
#define _mm512_srli_epi32 emulated::srli_epi32
#define _mm512_cmplt_epi8_mask emulated::cmplt_epi8_mask
#define _mm512_movm_epi16 emulated::movm_epi16
#define _mm512_movm_epi32 emulated::movm_epi32
#define _mm512_storeu_ps emulated::storeu_ps
#define _mm512_storeu_si512 emulated::storeu_si512
#define _mm512_sub_epi32 emulated::sub_epi32
#define _mm512_unpackhi_epi32 emulated::unpackhi_epi32
#define _mm512_unpackhi_epi64 emulated::unpackhi_epi64
#define _mm512_unpacklo_epi32 emulated::unpacklo_epi32
#define _mm512_unpacklo_epi64 emulated::unpacklo_epi64
#define _mm256_maskz_loadu_epi16 emulated::maskz_loadu_epi16
#define _mm256_mask_storeu_epi16 emulated::mask_storeu_epi16
#define __m512bh __m512i

#if EMULATED_SET >= 4
#include <unistd.h>

namespace emulated {

struct Tile {
    int32_t word[16][16];
};

static thread_local Tile tiles[8];
static thread_local bool shaped;

struct TileShape {
    uint8_t palette, first_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

// The kernels use whole tiles alone.
static inline void tile_loadconfig(const void* from) {
    TileShape shape;
    std::memcpy(&shape, from, sizeof(shape));
    shaped = shape.palette == 1;
    for (int i = 0; i < 8; i++) shaped = shaped && shape.bytes[i] == 64 && shape.rows[i] == 16;
}

static inline Tile& tile(int number) {
    if (!shaped) __builtin_trap();
    return tiles[number];
}

static inline void tile_loadd(int number, const void* from, long stride) {
    for (int r = 0; r < 16; r++) std::memcpy(tile(number).word[r], static_cast<const char*>(from) + r * stride, 64);
}

static inline void tile_stored(int number, void* to, long stride) {
    for (int r = 0; r < 16; r++) std::memcpy(static_cast<char*>(to) + r * stride, tile(number).word[r], 64);
}

static inline void tile_dpbf16ps(int sums, int left, int right) {
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 16; i++) {
            float even = 0, odd = 0;
            for (int k = 0; k < 16; k++) {
                const uint32_t a = tile(left).word[r][k], b = tile(right).word[k][i];
                even += half(a & 0xFFFF) * half(b & 0xFFFF);
                odd += half(a >> 16) * half(b >> 16);
            }
            tile(sums).word[r][i] = bits<int32_t>(bits<float>(tile(sums).word[r][i]) + (even + odd));
        }
}

static inline void tile_dpbusd(int sums, int left, int right) {
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 16; k++)
                for (int byte = 0; byte < 32; byte += 8)
                    tile(sums).word[r][i] += static_cast<uint8_t>(tile(left).word[r][k] >> byte) *
                                             static_cast<int8_t>(tile(right).word[k][i] >> byte);
}

}  // namespace emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#define _tile_loadconfig emulated::tile_loadconfig
#define _tile_release() (emulated::shaped = false)
#define _tile_zero(number) (emulated::tile(number) = emulated::Tile{})
#define _tile_loadd emulated::tile_loadd
#define _tile_stored emulated::tile_stored
#define _tile_dpbf16ps emulated::tile_dpbf16ps
#define _tile_dpbusd emulated::tile_dpbusd
#define syscall(...) 0L
#define __AMX_TILE__ 1
#endif
#if EMULATED_SET >= 2
#define __AVX512F__ 1
#endif
#if EMULATED_SET >= 3
#define __AVX512BF16__ 1
#define __AVX512VNNI__ 1
#endif
