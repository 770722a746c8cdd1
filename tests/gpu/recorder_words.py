# SPDX-License-Identifier: Apache-2.0
"""Draws words of the recorder's generator with Python's integers and fractions: what tests/gpu/recorder.cpp expects."""

from fractions import Fraction

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def random_word(seed, index):
    return mixed((mixed((seed + GOLDEN) & MASK) + (index + 1) * GOLDEN) & MASK)


def digest_term(index, word):
    return mixed(mixed((index + GOLDEN) & MASK) ^ ((word * 0xD1B54A32D192ED03) & MASK))


def nearest_code(value, exponent_bits, mantissa_bits, bias, largest):
    """The code whose value is nearest, ties to the even code; beyond the largest, that one."""
    sign = (1 << (exponent_bits + mantissa_bits)) if value < 0 else 0
    value = min(abs(value), largest)
    if value == 0:
        return 0
    exponent = 1 - bias
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = value / Fraction(2) ** (exponent - mantissa_bits)
    code = round(steps)  # ties to even
    return sign + code + ((exponent + bias - 1) << mantissa_bits)


def gaussian(random, exponent, *form):
    total = -8 * 32767 - 4
    for _half in range(2):
        total += sum(random >> (16 * i) & 0xFFFF for i in range(4))
        random = mixed((random + GOLDEN) & MASK)
    if form == F64:  # 40 random bits follow
        bits = (abs(total) << 40) + (random >> 24)
        return nearest_code((-bits if total < 0 else bits) * Fraction(2) ** (exponent - 56), *form)
    return nearest_code(Fraction(total) * Fraction(2) ** (exponent - 16), *form)


E4M3 = (4, 3, 7, 448)
E5M2 = (5, 2, 15, 57344)
F32 = (8, 23, 127, (2 - Fraction(1, 1 << 23)) * Fraction(2) ** 127)
F64 = (11, 52, 1023, (2 - Fraction(1, 1 << 52)) * Fraction(2) ** 1023)


def main():
    seed, tile, row = 7, 3, 2
    of_tile = random_word(seed ^ 0x74696C65, tile)
    words = []
    for is_b, form in ((0, E4M3), (1, E5M2)):
        own_row = (tile * 2 + is_b) * 512 + row
        words += [gaussian(random_word(seed, own_row * 128 + k), of_tile % 7 - 3, *form) for k in range(8)]
    places = [(tile * 256 + 1) * 512 + column for column in range(4)]
    words += [gaussian(random_word(seed ^ 0x61636375, place), of_tile % 7 * 2 - 4, *F32) for place in places]
    print(f"{random_word(7, 0):#x} {digest_term(3, 5):#x}")
    print(", ".join(f"{word:#x}" for word in words))
    own_row = tile * 2 * 512 + row
    fp64 = [gaussian(random_word(seed, own_row * 128 + k), of_tile % 7 - 3, *F64) for k in range(2)]
    fp64 += [gaussian(random_word(seed ^ 0x61636375, place), of_tile % 7 * 2 - 4, *F64) for place in places[:2]]
    print(", ".join(f"{word:#x}" for word in fp64))


main()
