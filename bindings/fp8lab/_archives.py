# SPDX-License-Identifier: Apache-2.0
"""Files of weights in a wheel or another ZIP archive: a command runs on each of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence

from fp8lab._check import _PICKLED, _READ

#: Options that name one file or folder for the result.
_ONE_RESULT = ("--json", "--out", "--html", "--plan", "--checkpoint")


def is_archive(path: str) -> bool:
    """Whether a path is, by its name, that of a wheel or a ZIP archive."""
    return path.lower().endswith((".whl", ".zip"))


def _opened(path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise ValueError(f"cannot read {path[-80:]!r}: it is no ZIP archive") from None
    except OSError as error:
        raise OSError(f"cannot read {path[-80:]!r}: {error.strerror}") from None


def _files_of_weights(archive: zipfile.ZipFile, path: str, command: str) -> list[zipfile.ZipInfo]:
    """The members that the command reads; fails where there is none."""
    endings = _READ + _PICKLED if command == "check" else _READ
    found = [one for one in archive.infolist() if not one.is_dir() and one.filename.lower().endswith(endings)]
    if not found:
        raise ValueError(f"{path[-80:]!r} has no file of weights: none that ends in {', '.join(endings)}")
    encrypted = next((one.filename for one in found if one.flag_bits & 1), None)
    if encrypted is not None:
        raise ValueError(f"{path[-80:]!r}: its member {encrypted[-80:]!r} is encrypted")
    return sorted(found, key=lambda one: one.filename)


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, folder: str) -> str:
    """The path of the member's bytes, in a file of the same last name in a folder of the archive's."""
    into = os.path.join(folder, os.path.basename(path), os.path.basename(member.filename))
    try:
        os.mkdir(os.path.dirname(into))
        with archive.open(member) as source, open(into, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"cannot read {path[-80:]!r}: its member {member.filename[-80:]!r}: {error}") from None
    except OSError as error:
        raise OSError(f"cannot unpack {member.filename[-80:]!r} to {folder}: {error.strerror or error}") from None
    return into


def _several(archive: str, members: Sequence[zipfile.ZipInfo]) -> str:
    names = ", ".join(one.filename for one in members[:3]) + (" and so on" if len(members) > 3 else "")
    return f"{os.path.basename(archive)[-80:]!r} has {len(members)}: {names}; unpack it and name one"


@contextlib.contextmanager
def one_file(path: str) -> Iterator[str]:
    """The path of an archive's one file of weights, unpacked to a folder that is gone afterwards."""
    with _opened(path) as archive, tempfile.TemporaryDirectory(prefix="fp8lab-") as folder:
        members = _files_of_weights(archive, path, "check")
        if len(members) > 1:
            raise ValueError(f"model must be an archive of one file of weights, and {_several(path, members)}")
        yield _unpack(archive, members[0], path, folder)


def run_each(words: Sequence[str], place: int) -> int:
    """Runs the command of the words on each file of weights of the archive at ``words[place]``, each unpacked to a
    folder that is gone afterwards; returns the largest exit status.

    Another process runs it, so that Ctrl-C ends that one, and this one takes the folder away.
    """
    path = words[place]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 0
    with _opened(path) as archive:
        members = _files_of_weights(archive, path, words[0])
        given = [option for option in _ONE_RESULT if any(word.partition("=")[0] == option for word in words)]
        if len(members) > 1 and given:
            raise ValueError(f"{given[0]} is for one model, and {_several(path, members)}")
        for member in members:
            with tempfile.TemporaryDirectory(prefix="fp8lab-") as folder:
                own = [*words[:place], _unpack(archive, member, path, folder), *words[place + 1 :]]
                if not {"--json", "--quiet"} & set(words):
                    print(f"{os.path.basename(path)}: {member.filename}", flush=True)
                command = [sys.executable, "-m", "fp8lab", *own]
                with subprocess.Popen(command) as process:
                    try:
                        code = process.wait()
                    except KeyboardInterrupt:
                        process.wait()  # it has got the signal as well
                        return 130
                status = max(status, code if code >= 0 else 128 - code)
    return status
