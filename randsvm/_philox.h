/* Philox4x64-10, the counter-based generator of Salmon, Moraes, Dror, Shaw (2011): four words for
   each value of the counter. */

#pragma once

#include <stdint.h>

#define PHILOX_ROUNDS 10
#define PHILOX_MULTIPLIER_0 UINT64_C(0xD2E7470EE14C6C93)
#define PHILOX_MULTIPLIER_1 UINT64_C(0xCA5A826395121157)
#define PHILOX_STEP_0 UINT64_C(0x9E3779B97F4A7C15)
#define PHILOX_STEP_1 UINT64_C(0xBB67AE8584CAA73B)

/* Return the upper 64 bits of a product. */
static inline uint64_t philox_upper(uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t low = (uint32_t)middle + a0 * b1;
    return a1 * b1 + (middle >> 32) + (low >> 32);
#endif
}

/* Compute the four words of a counter. */
static inline void philox_block(const uint64_t *key, const uint64_t *counter, uint64_t *x)
{
    uint64_t k0 = key[0], k1 = key[1];
    for (int i = 0; i < 4; i++)
        x[i] = counter[i];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t upper0 = philox_upper(PHILOX_MULTIPLIER_0, x[0]), lower0 = PHILOX_MULTIPLIER_0 * x[0];
        uint64_t upper1 = philox_upper(PHILOX_MULTIPLIER_1, x[2]), lower1 = PHILOX_MULTIPLIER_1 * x[2];
        x[0] = upper1 ^ x[1] ^ k0;
        x[1] = lower1;
        x[2] = upper0 ^ x[3] ^ k1;
        x[3] = lower0;
        k0 += PHILOX_STEP_0;
        k1 += PHILOX_STEP_1;
    }
}

/* Compute words first .. first + count - 1 of the stream. As in numpy, the counter is increased
   before its words are computed.

   key : (2,), counter : (4,), its first word the lowest; out : (count,). */
static void philox(const uint64_t *key, const uint64_t *counter, uint64_t first, uint64_t *out,
                   int64_t count)
{
    uint64_t now[4], words[4], carry = first / 4 + 1;
    for (int i = 0; i < 4; i++) {
        now[i] = counter[i] + carry;
        carry = now[i] < carry;
    }
    int at = (int)(first % 4);
    int64_t done = 0;
    while (done < count) {
        philox_block(key, now, words);
        for (; at < 4 && done < count; at++)
            out[done++] = words[at];
        at = 0;
        for (int i = 0; i < 4 && ++now[i] == 0; i++)
            ;
    }
}
