"""Compile ``backend.cpp`` once per source, torch, Python and compiler, and load it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("backend.cpp")
MODULE = "tracekit_privateuse1"
# What the Kineto headers of the wheel need. NDEBUG as in the wheel: without it RecordFunction has one member more.
FLAGS = ("-shared", "-fPIC", "-O1", "-std=c++20", "-DNDEBUG", "-DUSE_KINETO", "-DFMT_HEADER_ONLY=1")


class BackendUnavailableError(RuntimeError):
    """The backend cannot exist on this machine: no torch, too old a torch, or no C++ compiler."""


def load_extension() -> ModuleType:
    """Return the compiled extension, building it if no cached build fits.

    Several processes may call this at once: one compiles, the others wait for it.

    Raises:
        BackendUnavailableError: torch has no PrivateUse1 profiler registry, or there is no C++ compiler.
        RuntimeError: the compiler ran and failed, with its output.
    """
    include = _torch_folder() / "include"
    if not (include / "torch/csrc/profiler/standalone/privateuse1_profiler.h").is_file():
        raise BackendUnavailableError("this torch has no PrivateUse1 profiler registry (2.13 has)")
    # Named as the vendor's compiler is found by torch itself: CXX first.
    compiler = shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise BackendUnavailableError("no C++ compiler (set CXX, or install g++ or clang++)")
    command = _command(compiler)
    folder = _cache_root() / f"privateuse1-{_key(command)}"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{MODULE}.so"
    with _locked(folder / "lock"):
        if not library.is_file():
            _compile(command, library)
    return _load(library)


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BackendUnavailableError("torch is not installed")
    return Path(spec.origin).parent


def _cache_root() -> Path:
    chosen = os.environ.get("TRACEKIT_TEST_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "tracekit-tests"


def _command(compiler: str) -> list[str]:
    import torch

    root = _torch_folder()
    include = root / "include"
    folders = [include, include / "torch/csrc/api/include", include / "kineto", sysconfig.get_path("include")]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        compiler,
        *FLAGS,
        f"-DTORCH_EXTENSION_NAME={MODULE}",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *(argument for folder in folders for argument in ("-isystem", str(folder))),
        str(SOURCE),
        f"-L{root / 'lib'}",
        "-lc10",
        "-ltorch_cpu",
        "-ltorch",
        "-ltorch_python",
    ]


def _key(command: list[str]) -> str:
    import torch

    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout
    facts = (
        SOURCE.read_text("utf-8"),
        " ".join(command),
        torch.__version__,
        str(torch.version.git_version),
        str(sysconfig.get_config_var("SOABI")),
        version,
    )
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the system drops when its process dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _compile(command: list[str], library: Path) -> None:
    """Compile beside the library, then rename: a killed build leaves nothing that looks finished."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder) / library.name
        done = subprocess.run([*command, "-o", str(built)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{SOURCE.name} does not compile:\n{done.stdout}{done.stderr}")
        built.replace(library)


def _load(library: Path) -> ModuleType:
    import torch  # noqa: F401  loads the shared libraries that the extension is linked with

    spec = importlib.util.spec_from_file_location(MODULE, library)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{library} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
