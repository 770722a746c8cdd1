# SPDX-License-Identifier: Apache-2.0
"""`fp8lab check` on a model of many shards: what is planted is told, memory does not grow, a terminal is told how far it
is. With --exhaustive also on 3 GB, and on 20 GB of shards without room on the disk."""

import json
import os
import pathlib
import pty
import re
import subprocess
import time

import pytest
from command import PROGRAM, takes_long
from planted_model import write_model, write_sparse
from sampled import EXHAUSTIVE


def anonymous_peak(words: list[str], threads: int) -> tuple[str, float, float, float]:
    """Runs the program; returns stdout, the largest anonymous memory in MB, and CPU and wall seconds."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    begin = time.monotonic()
    process = subprocess.Popen(
        [str(PROGRAM), *words],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads]),
    )
    status, peak = pathlib.Path(f"/proc/{process.pid}/status"), 0
    seconds = 0.0
    lines = []
    os.set_blocking(process.stdout.fileno(), False)
    while process.poll() is None:
        try:
            found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
            fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            break
        peak = max(peak, int(found[1]) if found else 0)
        lines.append(process.stdout.read() or b"")
        time.sleep(0.01)
    os.set_blocking(process.stdout.fileno(), True)
    lines.append(process.stdout.read() or b"")
    process.wait()
    assert process.returncode == 0
    return b"".join(lines).decode(), peak / 1e3, seconds, time.monotonic() - begin


def tables_of(text: str) -> dict:
    tables = [section for section in json.loads(text)["sections"] if section["kind"] == "table"]
    return {table["name"]: {column["name"]: column["values"] for column in table["columns"]} for table in tables}


def judge(tables: dict, layers: int) -> None:
    """What is planted, and nothing else, is told."""
    rows = [dict(zip(tables["measures"], row, strict=True)) for row in zip(*tables["measures"].values(), strict=True)]
    suits = {(row["tensor"].split("model.")[-1].strip('"'), row["recipe"]): row["suitability"] for row in rows}
    for (tensor, recipe), how in suits.items():
        if "up_proj" in tensor or ("down_proj" in tensor and "layers.0." not in tensor):
            assert how == "suits", (tensor, recipe, how)  # normal values
    # Six elements make the scale of all; three channels the scales of their blocks, where four bits leave little.
    assert suits["layers.0.mlp.down_proj.weight", "modelopt_fp8"] == "hurts"
    for layer in range(layers):
        assert suits[f"layers.{layer}.self_attn.q_proj.weight", "ocp_mxfp4"] == "small"
        assert suits[f"layers.{layer}.self_attn.q_proj.weight", "compressed_tensors_channel"] == "suits"
    shown = {name.split("model.")[-1].strip('"'): i for i, name in enumerate(tables["tensors"]["tensor"])}
    assert len(shown) == 4 * layers
    down = shown["layers.0.mlp.down_proj.weight"]
    assert tables["tensors"]["suitability"][down] == "hurts"
    assert "6 of" in tables["tensors"]["verdict"][down] and "the SQNR is theirs" in tables["tensors"]["verdict"][down]
    for layer in range(layers):
        assert tables["tensors"]["zero_rows"][shown[f"layers.{layer}.self_attn.k_proj.weight"]] == 1


@takes_long
def test_what_is_planted_is_told_on_any_number_of_threads_in_bounded_memory(tmp_path):
    hidden, layers, shards = (2048, 48, 12) if EXHAUSTIVE else (512, 4, 2)
    size = write_model(tmp_path, hidden, layers, shards)
    texts = []
    for threads in (1, 2):
        text, peak, seconds, wall = anonymous_peak(["check", str(tmp_path), "--json"], threads)
        print(f"{size / 1e9:.2f} GB on {threads}: {peak:.0f} MB, {seconds:.1f} s of CPU, {wall:.1f} s")
        assert peak < 200
        texts.append(tables_of(text))
    assert texts[0] == texts[1]
    judge(texts[0], layers)


@pytest.mark.skipif(not EXHAUSTIVE, reason="takes long: ./dev test --exhaustive")
def test_20_gigabytes_of_sparse_shards_take_less_than_one_of_memory(tmp_path):
    size = write_sparse(tmp_path, 20)
    text, peak, seconds, wall = anonymous_peak(["check", str(tmp_path), "--json", "--recipes", "ocp_mxfp8_e4m3"], 2)
    print(f"{size / 1e9:.2f} GB: {peak:.0f} MB, {seconds:.1f} s of CPU, {wall:.1f} s")
    assert peak < 1000
    assert set(tables_of(text)["tensors"]["zero_rows"]) == {8192}


@takes_long
def test_a_terminal_is_told_bytes_rate_and_time(tmp_path):
    """A slow reader of the terminal changes nothing: the bar comes once a run has taken a second."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    write_sparse(tmp_path, 20 if EXHAUSTIVE else 2)
    main, other = pty.openpty()
    with subprocess.Popen([str(PROGRAM), "check", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=other) as process:
        os.close(other)
        shown = b""
        try:
            while piece := os.read(main, 4096):
                shown += piece
                if b"left" in shown:
                    process.kill()
        except OSError:  # the other end is closed
            pass
    os.close(main)
    assert re.search(rb"\[#* *\] +\d+ %  \d+\.\d\d of \d+\.\d\d GB, \d+ MB/s, [\d:]+ \w+ ?\w* left", shown), shown[
        -500:
    ]
