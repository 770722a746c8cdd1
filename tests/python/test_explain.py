# SPDX-License-Identifier: Apache-2.0
"""``explain``: what is told of a code, against ml_dtypes and exact fractions; and what notebooks and frames show."""

import html.parser
import io
import sys
import types
from fractions import Fraction

import fp8lab
import ml_dtypes
import numpy as np
import pytest

TYPES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m4": ml_dtypes.float8_e3m4,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
}
#: Every code of the small formats, and of the others a sample with all ends.
CASES = [
    (name, code)
    for name in TYPES
    for bits in [next(one.bits for one in fp8lab.formats() if one.name == name)]
    for code in range(1 << bits)
    if bits < 6 or code % 11 == 0 or code % 128 in (1, 0x7B, 0x7C, 0x7D, 0x7E, 0x7F)
]


def value_of(name: str, code: int) -> float:
    return float(np.uint8(code).reshape(1).view(TYPES[name])[0])


def rounded(name: str, x: float) -> int:
    with np.errstate(invalid="ignore"):
        return int(np.float32([x]).astype(TYPES[name]).view(np.uint8)[0])


@pytest.mark.parametrize("name", TYPES)
def test_a_code_is_what_ml_dtypes_says(name):
    for code in [one for format, one in CASES if format == name]:
        document = fp8lab.explain(name, code)
        facts, value = document.tables["code"].rows[0], value_of(name, code)
        assert int(facts["code"].split(" = ")[1].replace(" ", ""), 2) == code == int(facts["code"].split()[0], 16)
        if not np.isfinite(value):
            assert facts["fraction"] is None and "rounds_to_it" not in document.tables
            assert facts["class"] == ("NaN" if np.isnan(value) else "infinity")
            continue
        assert (
            Fraction(facts["fraction"].replace("2^", "")) == Fraction(value) if "^" not in facts["fraction"] else True
        )
        assert facts["value"] == value and np.signbit(facts["value"]) == np.signbit(value)
        edges = document.tables["rounds_to_it"].rows[0]
        # The ends belong to it where they are included, and what is next to them inside does and outside does not.
        for end, included, inward in (
            (edges["low"], edges["low_included"], np.inf),
            (edges["high"], edges["high_included"], -np.inf),
        ):
            if end == 0:
                continue
            inside, outside = np.nextafter(np.float32(end), np.float32(inward)), np.nextafter(np.float32(end), -inward)
            assert rounded(name, inside) == code, (code, end)
            is_end = abs(end) > max(abs(value_of(name, one)) for one in range(128) if np.isfinite(value_of(name, one)))
            if name not in ("e2m1", "e2m3") or not is_end:  # these saturate
                assert (rounded(name, end) == code) == included, (code, end)
                assert rounded(name, outside) != code, (code, end)
        line = next(one for one in document._content["sections"] if one["kind"] == "number_line")
        assert line["values"][line["marked"]] == value and line["values"] == sorted(set(line["values"]))


@pytest.mark.parametrize("name", TYPES)
def test_a_format_has_all_its_codes(name):
    codes = fp8lab.explain(name).tables["codes"]
    bits = next(one.bits for one in fp8lab.formats() if one.name == name)
    assert np.array_equal(codes["value"], [value_of(name, code) for code in range(1 << bits)], equal_nan=True)
    assert [int(one, 16) for one in codes["code"]] == list(range(1 << bits))


def test_e8m0_and_formats_of_ones_own():
    edges = fp8lab.explain("e8m0", 127).tables["rounds_to_it"].rows[0]
    assert (edges["low"], edges["high"]) == (0.75, 1.5)
    assert fp8lab.explain("e8m0", 0).tables["code"].rows[0]["fraction"] == "1/2^127"
    own = fp8lab.Format(3, 4, 3, name="mine")
    assert fp8lab.explain(own, 1).tables["code"].rows[0]["fraction"] == "1/64"
    assert "mine" in str(fp8lab.explain(own))


def test_what_has_a_name_is_explained():
    for one in (
        fp8lab.models()[0],
        fp8lab.profiles()[0],
        fp8lab.recipes()[0],
        fp8lab.linear_recipes()[0],
        fp8lab.gemm_recipes()[0],
    ):
        told = fp8lab.explain(one)
        assert one.source in told.tables["things"]["source"].tolist()
        assert fp8lab.explain(one.name).tables["things"]["description"].tolist()
    with pytest.raises(ValueError, match="did you mean te_mxfp8"):
        fp8lab.explain("te_mxfp88")
    with pytest.raises(ValueError, match="has no codes"):
        fp8lab.explain("te_mxfp8", 3)
    with pytest.raises(ValueError, match="'256' is no code from 0 to 0xFF"):
        fp8lab.explain("e4m3", 256)
    with pytest.raises(ValueError, match="code must be from 0"):
        fp8lab.explain("e4m3", -1)
    with pytest.raises(ValueError, match="must be one that fp8lab lists"):
        fp8lab.explain(fp8lab.model_with("hopper_wgmma_fp8", fraction_bits=20))
    with pytest.raises(TypeError, match="what must be a name"):
        fp8lab.explain(3)


class _Balanced(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "img", "link")
        self.open += [tag] if tag not in ("br", "input") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


X = np.linspace(-3, 3, 64, dtype=np.float32).reshape(2, 32)
CODES = np.full((2, 32), 0x38, np.uint8)
VALUES = {
    "Document": lambda: fp8lab.explain("e4m3", 1),
    "Table": lambda: fp8lab.explain("e4m3").tables["codes"],
    "Counts": lambda: next(iter(fp8lab.experiments.cast(size=10).histograms.values())),
    "Diagnosis": lambda: fp8lab.diagnose(X, fp8lab.quantize(X, "te_mxfp8").codes, fp8lab.quantize(X, "te_mxfp8").scales()),
    "GemmDiagnosis": lambda: fp8lab.diagnose_gemm(CODES, CODES, np.full((2, 2), 32, np.float32)),
    "Comparison": lambda: fp8lab.compare(X, X + 1),
    "equal Comparison": lambda: fp8lab.compare(X, X),
    "QuantizedComparison": lambda: fp8lab.compare(fp8lab.quantize(X, "te_mxfp8"), fp8lab.quantize(-X, "te_mxfp8")),
    "Quantized": lambda: fp8lab.quantize(X, "te_mxfp8"),
    "Recipe": lambda: fp8lab.recipes()[0].recipe,
    "NamedRecipe": lambda: fp8lab.recipes()[0],
    "NamedGemmRecipe": lambda: fp8lab.gemm_recipes()[0],
    "NamedLinearRecipe": lambda: fp8lab.linear_recipes()[0],
    "GemmRecipe": lambda: fp8lab.gemm_recipes()[0].recipe,
    "Format": lambda: fp8lab.Format(3, 4, 3, name="<script>alert(1)</script>"),
    "MmaModel": lambda: fp8lab.models()[0],
    "Histogram": lambda: fp8lab.histogram(X),
    "empty Histogram": lambda: fp8lab.histogram(np.float32([])),
    "ErrorTotals": lambda: fp8lab.errors(X, X + np.float32(1 / 3)),
    "empty ErrorTotals": lambda: fp8lab.errors(np.float32([]), np.float32([])),
    "trace": lambda: fp8lab.trace_dot(CODES[0], CODES[1], model="hopper_wgmma_fp8"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_notebook_shows_it_short_and_escaped(name):
    shown = VALUES[name]()._repr_html_()
    _Balanced(shown)
    assert len(shown) < 40_000 and "<script" not in shown and shown.count("<tr>") <= 24
    if name == "ErrorTotals":
        assert "<td" in shown and not any(
            len(word.strip("0.-")) > 9
            for word in shown.replace("<", " ").replace(">", " ").split()
            if word[:1].isdigit()
        )


class _Axes:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *args, **named: self.calls.append((name, args, named))


def test_a_histogram_is_a_frame_with_a_row_for_each_bin(monkeypatch):
    frames = types.SimpleNamespace(DataFrame=dict)
    histogram = fp8lab.histogram(X)
    assert len(histogram.edges) == len(histogram.counts) + 1
    for missing, there in (("polars", "pandas"), ("pandas", "polars")):
        monkeypatch.setitem(sys.modules, missing, None)
        monkeypatch.setitem(sys.modules, there, frames)
        for frame in (histogram.to_frame(), VALUES["Counts"]().to_frame()):
            assert list(frame) == ["low", "high", "count"] and len({len(one) for one in frame.values()}) == 1
            assert np.array_equal(frame["low"][1:], frame["high"][:-1])
        assert fp8lab.explain("e2m1").to_frame("codes")["value"][3] == 1.5
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"to_frame\(\) needs pandas or polars: pip install pandas"):
        histogram.to_frame()
    with pytest.raises(ValueError, match="unknown table 'codez'; known: landmarks, codes"):
        fp8lab.explain("e2m1").to_frame("codez")


def test_histograms_and_curves_are_drawn(monkeypatch):
    document = fp8lab.experiments.cast(size=100)
    name = next(iter(document.histograms))
    axes = _Axes()
    assert document.plot(name, axes=axes) is axes
    counts, edges = next(args for call, args, _ in axes.calls if call == "stairs")
    used = np.flatnonzero(document.histograms[name]["counts"])
    assert (
        counts.sum() == document.histograms[name]["counts"].sum()
        and len(edges) == len(counts) + 1 == used[-1] - used[0] + 2
    )
    fp8lab.histogram(X).plot(_Axes())
    curves = fp8lab.experiments.scaling(rows=32, columns=32, steps=3, recipes=["te_mxfp8"], delayed=[])
    axes = curves.plot(axes=_Axes())
    (x, y), named = next((args, named) for call, args, named in axes.calls if call == "plot")
    assert x.tolist() == [0, 1, 2] and (y > 0).all() and named["label"] == "te_mxfp8"
    with pytest.raises(ValueError, match="has no histogram or set of curves"):
        fp8lab.explain("e2m1").plot()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plot\(\) needs matplotlib: pip install matplotlib"):
        document.plot()


def test_plots_are_drawn_by_matplotlib(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed: pip install matplotlib")
    curves = fp8lab.experiments.scaling(rows=32, columns=32, steps=3, recipes=["te_mxfp8"], delayed=[]).plot()
    assert [line.get_label() for line in curves.get_lines()] == ["te_mxfp8"]
    bars = fp8lab.histogram(X).plot(plt.figure().gca())
    drawn = [*bars.patches, *bars.get_lines(), *bars.collections]
    assert drawn
    with io.BytesIO() as picture:
        curves.figure.savefig(picture, format="png")
        assert picture.getvalue().startswith(b"\x89PNG")
    plt.close("all")
