# SPDX-License-Identifier: Apache-2.0
import pytest
from command import column, prints, prints_nothing, refuses

#: The products cancel: only c and its rounding are left.
CANCELS = "dot --a 7e7e --b 7efe"


def test_it_shows_each_step_and_the_exact_sum(tmp_path):
    pattern = r"largest exponent E = 1 \(k 0\).*\nResult: 40700000 = 3.75.*\nExact: 40700000"
    prints(f"dot --values-a 1.5,0.25 --values-b 2,3 --got 40700000 --out {tmp_path}/dot", pattern)
    written = tmp_path / "dot" / "dot.json"
    assert column(written, "result", "word") == ["40700000"]
    assert column(written, "terms", "kept") == [0, 3, 0.75]


def test_a_page_draws_the_bits_one_below_the_other(tmp_path):
    prints(f"dot --values-a 448,-30 --values-b 448,0.5 --c 41500000 --html {tmp_path}/dot.html", "Page: ")
    page = (tmp_path / "dot.html").read_text()
    assert (
        '<td class="a">+11.0001000000000|       </td>' in page
        and '<td class="a">-  .            1|111    </td>' in page
    )
    assert ".a{white-space:pre;font-family:monospace}" in page


def test_another_word_is_status_3_and_says_what_would_give_it():
    pattern = (
        r"Result: 00000000 = 0.*\nGot: 3f800000 = 1, NOT equal: it differs by [+]1\n\n"
        r"What would give it:\n[^\n]*\n  hopper_mma_sync_fp8 "
    )
    prints(f"{CANCELS} --c 3f800000 --got 3f800000", pattern, status=3)


def test_quiet_tells_another_word_by_the_status_alone():
    prints_nothing(f"{CANCELS} --c 3f800000 --got 3f800000 --quiet", status=3)


def test_c_is_read_in_the_type_of_the_accumulator():
    prints(f"{CANCELS} --model ada_mma_fp8_f16 --c 7c00", "7c00 = inf")


def test_a_drawn_operand_is_as_long_as_the_other():
    prints(
        "dot --distribution-a normal --values-b 1,2,3",
        "a: e4m3, 3 float32 values drawn with seed 1 from normal, . of them changed",
    )
    pattern = r"a: e4m3, 32 float32 values drawn with seed 1 from normal.*\n.*b: e4m3, 32 float32 values drawn with seed 2 from normal"
    prints("dot --distribution-a normal --distribution-b normal", pattern)


REFUSED = {
    "--a 38": "one of b, values_b, file_b and distribution_b is needed",
    "--a 38 --b 38 --k 2": "k needs distribution_a or distribution_b.*",
    "--a 38 --distribution-b normal --k 2": "a and b must have the same K, not 1 and 2",
    "--distribution-a normal --distribution-b normal --k 0": "k must be from 1 to 262144, not 0",
    "--distribution-a norm --b 38": "--distribution-a: .*norm.*",
    "--a 38 --b 38 --seed-a 2": "--seed-a can be given only with --distribution-a",
    "--a 3g --b 38": 'a: "3g" is not a hexadecimal code of e4m3, which has 8 bits',
    "--a 38 --b 38,38": "a and b must have the same K, not 1 and 2",
    "--a 38 --b 38 --got 3f8000001": "got: .*",
    "--a 38 --values-a 1 --b 38": "--values-a cannot be given with --a",
    "--a 38 --b 38 --row 1": "--row can be given only with --file-a.*",
    "--file-a none --b 38": "cannot read none: there is no such file",
    "--a 38 --b 38 --scale-a 7f": "scale_a has 1 code; hopper_wgmma_fp8 has no block scales. Models that take e4m3 with such "
    "scales: blackwell_mxf8",
    "--a 38 --b 38 --format-a e3m4": "a is e3m4; hopper_wgmma_fp8 takes e4m3, e5m2. No model takes e3m4",
    "--a 38 --b 38 --format-a e2m3": "a is e2m3; .* Models that take e2m3: blackwell_tcgen05_fp8, .*, blackwell_mxf8, exact",
    "--model blackwell_mxf8 --a 38,38 --b 38,38": r"K must be a multiple of 32, a block of blackwell_mxf8, not 2 \(nearest: 32\)",
    "--model hopper_fp64 --values-a 1 --values-b 2 --promote-k 16": "promote_k does not apply to hopper_fp64, .*",
    "--model hopper_fp64 --values-a 1 --values-b 2 --format-b float32": "b is float32; hopper_fp64 takes float64. Models that take "
    "float32: ampere_tf32, .* lists all\\)",
}


@pytest.mark.parametrize("options", REFUSED)
def test_it_refuses(options):
    refuses(f"dot {options}", REFUSED[options])
