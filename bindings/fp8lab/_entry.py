# SPDX-License-Identifier: Apache-2.0
"""What every public function, method and property passes through: ``guard`` puts ``entry`` around them, once."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from fp8lab import _core, _values  # noqa: F401  # the latter makes their pickles
from fp8lab._arrays import short
from fp8lab._core import DelayedVersion, Distribution, ErrorTotals, Format, Histogram, MmaModel, Profile

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_MOST = 300  # the longest message, in characters
_DONE: set[type] = set()  # the classes that ``guard`` has been through
_ENTERED: set[Any] = set()  # the functions that ``entry`` has made

#: The special methods of a class that compute or write text; users call no other name that begins with an underscore.
_SPECIAL = (
    "__init__",
    "__str__",
    "__repr__",
    "_repr_html_",
    "__eq__",
    "__copy__",
    "__deepcopy__",
    "__reduce__",
    "__getstate__",
    "__setstate__",
)


def _is_own(error: BaseException) -> bool:
    """Whether it comes from this package or what that called in C++, and not from a function of the user's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is None or os.path.dirname(trace.tb_frame.f_code.co_filename) == os.path.dirname(__file__)


def _readable(error: Exception, function: str) -> Exception:
    """``error``, or one of its kind that says what was wrong in a line of at most 300 characters: the last net below
    all checks."""
    if not _is_own(error):
        return error
    if isinstance(error, MemoryError) and not str(error).startswith("device memory: "):
        return MemoryError(
            f"{function} needs more memory than there is: smaller or fewer arrays, or fewer threads, take less"
        )
    text = str(error)
    signature = re.search(r"incompatible (?:function|constructor) arguments.*?\n *1\. *([^\n]*)", text, re.DOTALL)
    if signature:
        taken = [name for name in re.findall(r"(\w+): ", signature[1]) if name != "self"]
        text = f"{function} got an argument of a wrong type, or too many: it takes {', '.join(taken)}"
    elif text.isprintable() and len(text) <= _MOST:
        return error
    return type(error)(short(text, _MOST))


def entry(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """``function``, run in the default floating-point environment and the "C" locale whatever the calling thread has
    set.

    Both are the caller's again afterwards, also where the call raises.
    """

    @functools.wraps(function)
    def entered(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            result: _Result = _core.call(function, args, kwargs)
        except (TypeError, ValueError, OSError, MemoryError) as error:
            better = _readable(error, getattr(function, "__name__", "this call"))
            if better is error:
                raise
            raise better from None
        return result

    _ENTERED.add(entered)
    return entered


def _is_function(value: Any) -> bool:
    """Whether it is a function or method, of Python or of the extension module."""
    return inspect.isroutine(value) or type(value).__name__ == "instancemethod"


def _guarded(value: Any) -> Any:
    """An attribute of a class with ``entry`` around it; what is neither function nor property as it is."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(entry(value.__func__))
    if isinstance(value, property):
        get, set, delete = (None if one is None else entry(one) for one in (value.fget, value.fset, value.fdel))
        return property(get, set, delete, value.__doc__)
    return entry(value) if _is_function(value) else value


def _guard_class(kind: type) -> None:
    """Put ``entry`` around what a class of the package offers, once: several may inherit from it."""
    if kind.__module__.partition(".")[0] != __package__ or kind in _DONE:
        return
    _DONE.add(kind)
    for key, attribute in list(vars(kind).items()):
        if key in _SPECIAL or not key.startswith("_"):
            guarded = _guarded(attribute)
            if guarded is not attribute:
                setattr(kind, key, guarded)


def guard(module: str, names: Iterable[str]) -> None:
    """Put ``entry`` around the functions of these names in the module, once, and around what the classes of these names
    offer.

    Functions are replaced in the module that defines them, too: there pickle looks for them.
    """
    here = sys.modules[module]
    for name in names:
        value = getattr(here, name)
        if inspect.isclass(value):
            for owner in value.__mro__:
                _guard_class(owner)
        elif _is_function(value) and value not in _ENTERED:
            guarded = entry(value)
            setattr(here, name, guarded)
            home = sys.modules.get(value.__module__)
            if home is not None and home is not _core:
                setattr(home, name, guarded)


# The classes of C++ come out of many modules; their pickles are made in ``_values``.
for _kind in (DelayedVersion, Distribution, ErrorTotals, Format, Histogram, MmaModel, Profile):
    _guard_class(_kind)
