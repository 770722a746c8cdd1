# SPDX-License-Identifier: Apache-2.0
"""`fp8lab check` on a Dask cluster gives the bytes of one process, whoever measured what and whoever was lost."""

import contextlib
import json
import logging
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import fp8lab
import numpy as np
import pytest
from fp8lab import _cluster, _core
from sampled import EXHAUSTIVE

distributed = pytest.importorskip("distributed")

F = np.float32
RECIPES = ["modelopt_fp8", "ocp_mxfp8_e4m3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with tensors of three sizes, one with a NaN, one of zeros, and one that is left out."""
    folder = tmp_path_factory.mktemp("model")
    random = np.random.default_rng(3)
    for i, shape in enumerate([(128, 64), (32, 64), (96, 96), (3, 64, 32), (64, 64), (64, 64)]):
        np.save(folder / f"layers.{i}.experts.weight.npy", random.standard_normal(shape).astype(F))
    odd = random.standard_normal((64, 64)).astype(F)
    odd[3, 4] = np.nan
    np.save(folder / "odd.weight.npy", odd)
    np.save(folder / "zeros.weight.npy", np.zeros((32, 32), F))
    np.save(folder / "norm.weight.npy", np.ones(64, F))
    return folder


@contextlib.contextmanager
def cluster(workers=1, processes=False, threads=2):
    with distributed.LocalCluster(
        protocol="tcp://",
        n_workers=workers, processes=processes, threads_per_worker=threads, dashboard_address=None, worker_dashboard_address=None
    ) as local:  # fmt: skip
        yield local


@pytest.fixture(scope="module")
def address():
    with cluster() as local:
        yield local.scheduler_address


def written(out):
    """The bytes of the result, without the time of the run."""
    return re.sub(rb'"date": "[^"]*"', b'"date": ""', (out / "check.json").read_bytes())


def bytes_of(folder, out, **named):
    fp8lab.check(folder, recipes=RECIPES, out=out, **named)
    return written(out)


def test_a_cluster_gives_the_bytes_of_one_process(model, address, tmp_path, monkeypatch):
    alone = bytes_of(model, tmp_path / "alone")
    measured, measure = [], _core.check_lines
    monkeypatch.setattr(_core, "check_lines", lambda order, some: measured.extend(some) or measure(order, some))
    assert bytes_of(model, tmp_path / "cluster", scheduler=address) == alone
    assert sorted(measured) == list(range(10))  # the workers, each tensor once
    with distributed.Client(address, set_as_default=False) as client:
        assert bytes_of(model, tmp_path / "client", scheduler=client) == alone
        assert client.status == "running"  # it is the caller's
    monkeypatch.chdir(model.parent)  # a relative path is the worker's, too
    relative = pathlib.Path(model.name)
    assert bytes_of(relative, tmp_path / "2", scheduler=address) == bytes_of(relative, tmp_path / "1")


def test_recipes_of_the_callers_own_reach_the_workers(model, address, tmp_path):
    recipes = {"mine": fp8lab.JustInTime(), "blocks": fp8lab.MxBlock()}
    for name, where in (("alone", {}), ("cluster", {"scheduler": address})):
        fp8lab.check(model, recipes=recipes, ignore=["odd*"], tensors=["*.weight"], out=tmp_path / name, **where)
    assert written(tmp_path / "cluster") == written(tmp_path / "alone")


def test_a_checkpoint_is_kept_and_gone_on_from(model, address, tmp_path):
    alone = bytes_of(model, tmp_path / "alone", checkpoint=tmp_path / "kept", threads=1)
    lines = (tmp_path / "kept").read_bytes().splitlines(keepends=True)
    (tmp_path / "kept").write_bytes(b"".join(lines[4:1:-1]) + lines[0][:50])
    given = {"checkpoint": tmp_path / "kept", "resume": True}
    resumed = json.loads(bytes_of(model, tmp_path / "cluster", scheduler=address, **given))
    told = json.loads(alone)
    assert resumed.pop("arguments") != told.pop("arguments")  # resume
    assert resumed == told
    assert sorted((tmp_path / "kept").read_bytes().splitlines(keepends=True)) == sorted(lines)


def test_ranges_have_every_tensor_once():
    sizes = [(2, 10), (3, 10), (5, 100), (6, 1), (9, 1), (10, 40)]
    for parts in (1, 2, 3, 7, 100):
        tasks = list(_cluster.ranges(sizes, parts))
        assert [tensor for task in tasks for tensor in task] == [2, 3, 5, 6, 9, 10]
        assert len(tasks) <= 2 * parts
    assert list(_cluster.ranges(sizes, 1)) == [[2, 3, 5, 6, 9, 10]]


def test_lines_of_something_else_are_refused(model, address, tmp_path, monkeypatch):
    order = {
        "paths": [os.fsencode(model)],
        "names": [],
        "ignore": [],
        "recipes": [("r", fp8lab.JustInTime()._core().fields)],
    }
    with pytest.raises(ValueError, match="there are 10 tensors here, and more where the run began"):
        _core.check_lines(order, [99])
    with pytest.raises(ValueError, match=r"worker .* has fp8lab 0.0, and this process"):
        monkeypatch.setattr(_core, "version", "0.0")
        run_measure = _cluster.measure
        monkeypatch.setattr(_cluster, "_library", lambda: distributed)
        monkeypatch.setattr(distributed, "get_worker", lambda: type("Worker", (), {"address": "tcp://w"}))
        run_measure("0.2.0", order, [0])


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_what_a_worker_cannot_do_is_told_with_its_address(error, model, address, tmp_path, monkeypatch):
    def fail(order, tensors):
        raise error("cannot read /none: there is no such file")

    monkeypatch.setattr(_core, "check_lines", fail)
    with pytest.raises(error, match=r"^worker tcp://127.0.0.1:\d+: cannot read /none: there is no such file$"):
        fp8lab.check(model, scheduler=address)


def test_a_scheduler_without_workers_is_told(model, monkeypatch):
    monkeypatch.setattr(_cluster, "_FIRST_WORKER", 0.2)
    with cluster(workers=0) as local, pytest.raises(OSError, match="scheduler 'tcp://.*' has no workers"):
        fp8lab.check(model, scheduler=local.scheduler_address)


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def command(*words, **named):
    return subprocess.run(
        [sys.executable, "-m", "fp8lab", *map(str, words)], capture_output=True, text=True, check=False, **named
    )


def test_the_command_tells_a_scheduler_that_is_not_there_in_one_line(model):
    begun = time.monotonic()
    call = command("check", model, "--scheduler", f"tcp://127.0.0.1:{free_port()}")
    assert (call.returncode, call.stdout) == (2, "")
    assert re.fullmatch("fp8lab: scheduler 'tcp://127.0.0.1:.*' does not answer: .*refused\n", call.stderr), call.stderr
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("scheduler", ["nowhere", "foo://bar:1", "", "tcp://", "tcp://a:b", "inproc://1.2.3.4:5"])
def test_what_is_no_address_is_told(model, scheduler):
    with pytest.raises(ValueError, match=re.escape(f"scheduler must be tcp://HOST:PORT, not {scheduler!r}")):
        fp8lab.check(model, scheduler=scheduler)


def test_what_answers_and_is_no_scheduler_is_told(model, monkeypatch):
    monkeypatch.setattr(_cluster, "_CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match="does not answer: "):
            fp8lab.check(model, scheduler=address)


def test_python_tells_wrong_schedulers(model, address, monkeypatch):
    with pytest.raises(
        TypeError, match="scheduler must be the address of a Dask scheduler or a distributed.Client, not int"
    ):
        fp8lab.check(model, scheduler=3)
    with pytest.raises(ValueError, match="scheduler can be given only with file"):
        fp8lab.check({"w": np.ones((4, 4), F)}, scheduler=address)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"scheduler needs dask.distributed: pip install 'fp8lab\[dask\]'"):
        fp8lab.check(model, scheduler=address)


@pytest.mark.skipif(not EXHAUSTIVE, reason="three processes take a quarter of a minute")
def test_a_worker_that_is_killed_loses_nothing_and_nothing_counts_twice(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    random = np.random.default_rng(5)
    for i in range(60):
        np.save(folder / f"{i:02}.weight.npy", random.standard_normal((512, 1024)).astype(F))
    alone = bytes_of(folder, tmp_path / "alone")
    kept = tmp_path / "kept"
    with cluster(workers=3, processes=True, threads=1) as local:
        killed = []

        def kill_one():
            """Kills a worker that holds tasks, when some results are there."""
            with distributed.Client(local.scheduler_address, set_as_default=False) as client:
                while not kept.exists() or kept.read_bytes().count(b"\n") < 5:
                    time.sleep(0.02)
                busy = [address for address, tasks in client.processing().items() if tasks]
                (victim,) = [worker for worker in local.workers.values() if worker.worker_address == busy[0]]
                os.kill(victim.pid, signal.SIGKILL)
                killed.append((busy[0], kept.read_bytes().count(b"\n")))

        thread = threading.Thread(target=kill_one)
        thread.start()
        told = json.loads(bytes_of(folder, tmp_path / "cluster", scheduler=local.scheduler_address, checkpoint=kept))
        thread.join()
    assert killed and killed[0][1] < 60  # midway
    one = json.loads(alone)
    assert told.pop("arguments")["checkpoint"] and one.pop("arguments")
    assert told == one
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 60
    assert bytes_of(folder, tmp_path / "resumed", checkpoint=kept, resume=True)


def test_what_a_cancelled_callback_raises_is_not_told(caplog):
    def told():
        caplog.clear()
        for name in ("tornado.application", "distributed.client"):
            logging.getLogger(name).error("Exception in callback")
        return [record.name for record in caplog.records]

    assert told() == ["tornado.application", "distributed.client"]
    quiet = _cluster._Quiet()
    assert told() == []
    quiet.restore()
    assert told() == ["tornado.application", "distributed.client"]


def test_a_run_that_is_interrupted_keeps_what_has_come_and_cancels_the_rest(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    random = np.random.default_rng(5)
    for i in range(40):
        np.save(folder / f"{i:02}.weight.npy", random.standard_normal((512, 1024)).astype(F))
    kept = tmp_path / "kept"
    with cluster(threads=1) as local:
        words = ["check", folder, "--scheduler", local.scheduler_address, "--checkpoint", kept]
        call = subprocess.Popen([sys.executable, "-m", "fp8lab", *map(str, words)], stderr=subprocess.PIPE, text=True)
        while not kept.exists() or kept.read_bytes().count(b"\n") < 2:
            assert call.poll() is None, call.stderr.read()
            time.sleep(0.01)
        call.send_signal(signal.SIGINT)
        message = call.communicate(timeout=60)[1]
        assert call.returncode == -signal.SIGINT
        lines = kept.read_bytes().count(b"\n")
        assert re.fullmatch(
            rf"fp8lab: the results of {lines} of 40 tensors are kept in .*; --resume goes on from them\n", message
        )
        with distributed.Client(local.scheduler_address, set_as_default=False) as client:
            end = time.monotonic() + 20
            while any(client.processing().values()) and time.monotonic() < end:
                time.sleep(0.05)
            assert not any(client.processing().values())
        alone = bytes_of(folder, tmp_path / "alone")
        assert kept.read_bytes().count(b"\n") == lines < 40
        told, one = json.loads(bytes_of(folder, tmp_path / "resumed", checkpoint=kept, resume=True)), json.loads(alone)
        assert told["sections"] == one["sections"]
