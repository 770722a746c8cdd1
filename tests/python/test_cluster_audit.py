# SPDX-License-Identifier: Apache-2.0
"""The audit of a quantized model in parts: on a Dask cluster, from a checkpoint, and in any order, to the same bytes."""

import contextlib
import copy
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import fp8lab
import numpy as np
import pytest
from fp8lab import _core
from sampled import EXHAUSTIVE

sys.path.append(str(pathlib.Path(__file__).parent / "checkpoints"))  # quantized_models
from quantized_models import DAMAGE, original, right, write

#: Of each kind of comparison one: codes alone, the original, weights beside each other, a fused layer, the usual writer.
PLANTED = ["nan_block_scale", "nibble_order", "fused_global_scales", "exchanged_tensors", "stale_global_scale"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write(tmp_path_factory.mktemp("original"), *original())


def planted(name, folder):
    layout, _, _, plant = DAMAGE[name]
    tensors, config = copy.deepcopy(right(layout))
    plant(tensors, config)
    return write(folder, tensors, config)


def told(out):
    """The bytes of the result without the time of the run and without how it was done."""
    text = re.sub(rb'"date": "[^"]*"', b'"date": ""', (pathlib.Path(out) / "check.json").read_bytes())
    document = json.loads(text)
    document.pop("arguments")
    return json.dumps(document), [row for row in document["sections"] if row.get("name") == "findings"]


def audited(folder, model, out, **named):
    fp8lab.check(folder, original=model, out=out, **named)
    return told(out)


@contextlib.contextmanager
def cluster(distributed, workers=1, processes=False, threads=2):
    with distributed.LocalCluster(
        protocol="tcp://",
        n_workers=workers, processes=processes, threads_per_worker=threads, dashboard_address=None, worker_dashboard_address=None
    ) as local:  # fmt: skip
        yield local


def test_a_cluster_audits_to_the_bytes_of_one_process(model, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    with cluster(distributed) as local:
        for name in PLANTED:
            folder = planted(name, tmp_path / name)
            alone, findings = audited(folder, model, tmp_path / f"{name} alone")
            assert findings
            done, do = [], _core.check_lines
            monkeypatch.setattr(
                _core, "check_lines", lambda order, some, done=done, do=do: done.extend(some) or do(order, some)
            )
            assert audited(folder, model, tmp_path / f"{name} cluster", scheduler=local.scheduler_address)[0] == alone
            assert sorted(done) == list(range(14))  # each weight once, by the workers
            monkeypatch.undo()
        folder = planted("nan_block_scale", tmp_path / "without")
        alone, _ = audited(folder, None, tmp_path / "1")
        assert audited(folder, None, tmp_path / "2", scheduler=local.scheduler_address)[0] == alone


@pytest.mark.parametrize("name", PLANTED)
def test_an_audit_goes_on_from_its_checkpoint(name, model, tmp_path):
    folder = planted(name, tmp_path / "model")
    kept = tmp_path / "kept"
    alone, _ = audited(folder, model, tmp_path / "alone", checkpoint=kept)
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 14
    kept.write_bytes(b"".join(lines[9:3:-1]) + lines[0][:50])
    assert audited(folder, model, tmp_path / "resumed", checkpoint=kept, resume=True)[0] == alone
    assert sorted(kept.read_bytes().splitlines(keepends=True)) == sorted(lines)
    # Nothing is taken of another original.
    other = write(tmp_path / "other", *original())
    os.utime(other / "model.safetensors", (1, 1))
    audited(folder, other, tmp_path / "others", checkpoint=kept, resume=True)
    assert kept.read_bytes().count(b"\n") == 28
    with pytest.raises(ValueError, match="is there already; resume goes on from it"):
        fp8lab.check(folder, original=model, checkpoint=kept)
    kept.write_bytes(b'{"key": 3}\n')
    with pytest.raises(OSError, match="byte 0 begins a line that is none of a checkpoint of fp8lab check"):
        fp8lab.check(folder, original=model, checkpoint=kept, resume=True)


def test_workers_that_see_other_files_are_told(model, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    folder = planted("nibble_order", tmp_path / "model")
    do = _core.check_lines
    monkeypatch.setattr(_core, "check_lines", lambda order, some: do({**order, "original": None}, some))
    with cluster(distributed) as local, pytest.raises(ValueError, match="it looked at other files than this process"):
        fp8lab.check(folder, original=model, scheduler=local.scheduler_address)
    with pytest.raises(ValueError, match="there are 14 weights here, and more where the run began"):
        do({"quantized": os.fsencode(folder), "original": None}, [99])


@pytest.mark.skipif(not EXHAUSTIVE, reason="three processes take a quarter of a minute")
def test_a_worker_that_is_killed_loses_no_weight_and_counts_none_twice(tmp_path):
    distributed = pytest.importorskip("distributed")
    random = np.random.default_rng(5)
    draws = {f"layers.{i}.up_proj.weight": random.standard_normal((512, 1024)).astype(np.float32) for i in range(60)}
    model = write(tmp_path / "original", {name: ("F32", x) for name, x in draws.items()}, {})
    folder = tmp_path / "model"
    fp8lab.experiments.quantize(model=str(model), into=str(folder), layout="ct_fp8_channel")
    alone, _ = audited(folder, model, tmp_path / "alone")
    kept = tmp_path / "kept"
    with cluster(distributed, workers=3, processes=True, threads=1) as local:
        killed = []

        def kill_one():
            """Kills a worker that holds tasks, when some results are there."""
            with distributed.Client(local.scheduler_address, set_as_default=False) as client:
                while not kept.exists() or kept.read_bytes().count(b"\n") < 1:
                    time.sleep(0.002)
                busy = [address for address, tasks in client.processing().items() if tasks]
                for worker in local.workers.values():
                    if busy and worker.worker_address == busy[0]:
                        os.kill(worker.pid, signal.SIGKILL)
                        killed.append(kept.read_bytes().count(b"\n"))

        thread = threading.Thread(target=kill_one)
        thread.start()
        text, _ = audited(folder, model, tmp_path / "cluster", scheduler=local.scheduler_address, checkpoint=kept)
        thread.join()
    assert killed and killed[0] < 60  # midway
    assert text == alone
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 60


def test_an_audit_that_is_interrupted_keeps_what_it_knows(model, tmp_path):
    """SIGINT ends the command by that signal; what it had found goes on from the checkpoint."""
    folder = planted("nibble_order", tmp_path / "model")
    kept = tmp_path / "kept"
    words = ["check", folder, "--original", model, "--checkpoint", kept]
    call = subprocess.Popen([sys.executable, "-m", "fp8lab", *map(str, words)], stderr=subprocess.PIPE, text=True)
    while not kept.exists() or kept.read_bytes().count(b"\n") < 1:
        if call.poll() is not None:
            pytest.skip("it was done before the signal")
        time.sleep(0.001)
    call.send_signal(signal.SIGINT)
    message = call.communicate(timeout=60)[1]
    if call.returncode == 1:
        pytest.skip("it was done before the signal")
    assert call.returncode == -signal.SIGINT
    lines = kept.read_bytes().count(b"\n")
    assert re.fullmatch(
        rf"fp8lab: the results of {lines} of 14 weights are kept in .*; --resume goes on from them\n", message
    )
    alone, _ = audited(folder, model, tmp_path / "alone")
    assert audited(folder, model, tmp_path / "resumed", checkpoint=kept, resume=True)[0] == alone
