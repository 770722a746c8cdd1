# SPDX-License-Identifier: Apache-2.0
"""A page of several results."""

from __future__ import annotations

import os
import pathlib

from fp8lab import _core
from fp8lab._arrays import check_path
from fp8lab._entry import guard as _guard

__all__ = [
    "report",
]


def report(directory: str | os.PathLike[str], *, html: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Make one page for a browser of all results in a directory.

    Parameters
    ----------
    directory : path
        The .json files that experiments wrote, by ``out`` or ``Document.save``, in it and in directories below it, come
        in the order of their names. Other .json files, links to directories and what cannot be read are left out, and
        the page names them.
    html : path, optional
        The file to write; ``report.html`` in the directory if left out. It needs no other file and no network.

    Returns
    -------
    pathlib.Path
        Where the page is.

    Raises
    ------
    ValueError
        Where the directory is not there or there is no result in it and below it.
    OSError
        Where the page cannot be written; what was there stays.
    """
    page = b"" if html is None else check_path(html, "html")
    written, _, _ = _core.write_report(check_path(directory, "directory"), page)
    return pathlib.Path(os.fsdecode(written))


_guard(__name__, __all__)
