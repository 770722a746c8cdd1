# SPDX-License-Identifier: Apache-2.0
"""Modules of packages, loaded alone: a package's own ``__init__``, which imports models and launchers, does not run.

Packages are installed, or lie in checkouts of their projects (``repositories``).
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import tempfile
import types
from pathlib import Path

import repositories


class _Bare(types.ModuleType):
    """A package without its ``__init__``: a name is looked for in its modules that define it."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        defines = re.compile(rf"^(def|class) {name}\b|^{name}\s*[:=]", re.MULTILINE)
        for folder in self.__path__:
            for file in sorted(Path(folder).glob("*.py")):
                if file.name != "__init__.py" and defines.search(file.read_text()):
                    return getattr(importlib.import_module(f"{self.__name__}.{file.stem}"), name)
        raise AttributeError(name)


class _Finder:
    def __init__(self, root: str, folder: Path):
        self.root, self.folder = root, folder

    def find_spec(self, name, path=None, target=None):
        if name != self.root and not name.startswith(self.root + "."):
            return None
        folder = self.folder.joinpath(*name.split(".")[1:])
        if not (folder / "__init__.py").exists():
            return None
        spec = importlib.util.spec_from_loader(name, self, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    def create_module(self, spec):
        return _Bare(spec.name)

    def exec_module(self, module):
        pass


class _Anything:
    """Whatever a name that nothing here calls may be: a class to derive from, a decorator, a module's member."""

    def __init__(self, *args, **named):
        pass

    def __call__(self, *args, **named):
        return self

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class _Unused(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {}) if name[0].isupper() and not name.isupper() else _Anything()


#: By the package's name, and the commit where it is of a repository.
_loaded: dict[tuple[str, str], dict[str, types.ModuleType]] = {}


def module(
    name: str, *, unused: tuple[str, ...] = (), folder: Path | None = None, commit: str = ""
) -> types.ModuleType:
    """The module of an installed package, or of one in ``folder``. Raises ImportError where it, or what it needs, is
    missing.

    ``unused`` are modules from which it takes names for functions that nothing here calls: stand-ins replace them.
    Other importers of the package find it as if this had not been.
    """
    root = name.split(".", maxsplit=1)[0]
    if name not in _loaded.setdefault((root, commit), {}):
        with present(root, unused=unused, folder=folder, commit=commit):
            importlib.import_module(name)
    return _loaded[root, commit][name]


@contextlib.contextmanager
def present(root: str, *, unused: tuple[str, ...] = (), folder: Path | None = None, commit: str = ""):
    """A block in which the package is what ``module`` makes of it: for functions that import more of it when they
    run."""
    if folder is None:
        spec = importlib.util.find_spec(root)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"{root} is not installed")
        folder = Path(spec.submodule_search_locations[0])
    others = _taken_out(root)
    stand_ins = {one: _Unused(one) for one in unused if one not in sys.modules}
    finder = _Finder(root, folder)
    sys.modules.update(_loaded[root, commit] | stand_ins)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for one in stand_ins:
            del sys.modules[one]
        _loaded[root, commit].update(_taken_out(root))
        sys.modules.update(others)


def _taken_out(root: str) -> dict[str, types.ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name == root or name.startswith(root + ".")}


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{distribution} is not installed") from None


def from_git(
    project: str, name: str, files: list[str], *, unused: tuple[str, ...] = (), commit: str = "HEAD"
) -> types.ModuleType:
    """A module of a repository's newest commit, or another; ``files`` are those that it needs, from the package's root
    on."""
    root = name.split(".", maxsplit=1)[0]
    if name in _loaded.get((root, commit), {}):
        return _loaded[root, commit][name]
    with tempfile.TemporaryDirectory() as tree:
        for file in files:
            path = Path(tree, file)
            for folder in [path.parent, *path.parent.parents][: file.count("/")]:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "__init__.py").touch()
            path.write_text(_git(project, "show", f"{commit}:{file}"))
        return module(name, unused=unused, folder=Path(tree, root), commit=commit)


def commit(project: str, tag: str = "HEAD") -> str:
    """The newest commit in short, or the version that a tag names."""
    found = _git(project, "rev-parse", "--short=7", f"{tag}^{{commit}}").strip()
    return found if tag == "HEAD" else tag.removeprefix("v")


def _git(project: str, *arguments: str) -> str:
    return repositories.git(project, *arguments).decode()
