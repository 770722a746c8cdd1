# SPDX-License-Identifier: Apache-2.0
"""Permutations by a mask give what Transformer Engine's Triton kernels write in Triton's interpreter."""

import json

import numpy as np
import pytest
import triton_words
from fp8lab import operators

CASES = json.loads(triton_words.VECTORS.read_text())["cases"]


def test_the_cases_are_those_of_the_program():
    assert list(CASES) == [f"{t} {e} {c} {dtype}" for t, e, c in triton_words.SIZES for dtype in ("float32", "float16")]


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_gave_the_same_words(name):
    *sizes, dtype = name.split()
    tokens, experts, columns = map(int, sizes)
    given = triton_words.inputs(tokens, experts, columns, dtype)
    x, p, offsets = given["x"], given["probabilities"], {"pad_offsets": given["pad_offsets"]}
    permuted, rows = given["permuted"], {"rows": len(given["permuted"])}
    table = operators.moe_mask_map(given["mask"])
    dx, dp = operators.moe_mask_unpermute_backward(x, permuted, table, p, **offsets)
    sizes, order = triton_words.chunks(tokens)
    places = operators.moe_chunk_map(sizes, order, tokens=tokens)
    found = {
        "map": table,
        "permuted": operators.moe_mask_permute(x, table, probabilities=p, **rows, **offsets),
        "permuted_probabilities": operators.moe_mask_permute_probabilities(p, table, **rows, **offsets),
        "unpermuted": operators.moe_mask_unpermute(permuted, table, p, **offsets),
        "unpermuted_probabilities": operators.moe_mask_unpermute_probabilities(
            given["permuted_probabilities"], table, **offsets
        ),
        "dx": dx,
        "dprobabilities": dp,
        "chunk_map": places,
    }
    for back, kind in ((False, "sorted"), (True, "unsorted")):
        found[kind] = operators.moe_sort_chunks(x, places, back=back)
        found[f"{kind}_probabilities"] = operators.moe_sort_chunks(p[:, :1], places, back=back)
    assert set(found) == set(CASES[name])
    different = [kind for kind, array in found.items() if triton_words.word(np.asarray(array)) != CASES[name][kind]]
    assert not different
