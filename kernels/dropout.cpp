// Masks of dropout. Compiled for AVX2 and for AVX-512, with KERNELS its namespace and TABLE the name of
// its function.
#include "encoder.h"
#include "simd.h"

namespace KERNELS {

alignas(64) static const int32_t NUMBERS[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// 32 random bits of each counter times an odd number plus the first key: random_words of
// network/dropout.py, to the bit.
INLINE I hashed(I words, I second) {
    words = multiply(words ^ shifted_right<16>(words), splat(0x7FEB352D));
    words = add(words, second);
    words = multiply(words ^ shifted_right<15>(words), splat(static_cast<int32_t>(0x846CA68Bu)));
    return words ^ shifted_right<16>(words);
}

// T is an integer as wide as the values that are masked; `begin` is a multiple of four.
template <class T>
static void masks(const bs_masks& call, int64_t begin, int64_t end) {
    constexpr int64_t STEP = 4 * LANES;  // entries that a vector of words decides on
    constexpr uint32_t ODD = 0x9E3779B9u;
    // as bytes with a sign, 256 - dropped of them are less
    const uint32_t limit = static_cast<uint8_t>(128 - call.dropped) * 0x01010101u;
    const I limits = splat(static_cast<int32_t>(limit)), second = splat(static_cast<int32_t>(call.second));
    const uint32_t start = static_cast<uint32_t>(begin / 4) * ODD + call.first;
    I words = add(multiply(load_words(NUMBERS), splat(static_cast<int32_t>(ODD))),
                  splat(static_cast<int32_t>(start)));
    const I step = splat(static_cast<int32_t>(LANES * ODD));
    auto* to = static_cast<T*>(call.mask);
    for (; end - begin >= STEP; begin += STEP, words = add(words, step))
        store_less(to + begin, hashed(words, second), limits);
    if (begin == end) return;
    T rest[STEP];
    store_less(rest, hashed(words, second), limits);
    __builtin_memcpy(to + begin, rest, static_cast<size_t>(end - begin) * sizeof(T));
}

static void of_width(const bs_masks& call, int64_t begin, int64_t end) {
    if (call.bytes == 2) masks<int16_t>(call, begin, end);
    else masks<int32_t>(call, begin, end);
}

}  // namespace KERNELS

namespace bertsmith {
const DropoutMasks TABLE = KERNELS::of_width;
}
