"""What Causerie needs of the system: a compiler, Python's headers, and the libraries that Qt loads.

On Debian and Ubuntu as root what is missing is installed by apt; elsewhere it is named, with the command that brings it.
Libraries are looked for by loading them, not in a package database, so any system that has them will do.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

# Library -> Debian package. Source: ldd of PySide6's libQt6Gui, libQt6XcbQpa, libqxcb and libqoffscreen.
QT_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
}


@dataclass
class Need:
    """One thing that is missing.

    Attributes:
        what: its name for a person.
        package: the Debian package that has it.
        is_vital: nothing can be built without it.
    """

    what: str
    package: str
    is_vital: bool


@dataclass
class SystemNeeds:
    """Finds what is missing and gets it where that is possible.

    Attributes:
        for_tests: whether what only tests need counts.
    """

    for_tests: bool
    _apt_failed: str = field(default="", init=False)

    def meet(self) -> bool:
        """Get what is missing, or name it; False where something is missing without which nothing can be built."""
        missing = self.missing()
        if missing and self._can_apt():
            self._apt([need.package for need in missing])
            missing = self.missing()
        if not missing:
            return True
        print(self._advice(missing), file=sys.stderr)
        return not any(need.is_vital for need in missing)

    def missing(self) -> list[Need]:
        """What is not there, most needed first."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        needs = []
        if not shutil.which(shlex.split(os.environ.get("CXX", "g++"))[0]):
            needs.append(Need("a C++ compiler (g++, or the one that CXX names)", "g++", True))
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            needs.append(Need("Python's header files (Python.h)", f"{python}-dev", True))
        if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
            needs.append(Need("Python's venv module", f"{python}-venv", True))
        if sys.platform.startswith("linux"):
            needs += [Need(soname, package, False) for soname, package in QT_LIBRARIES.items() if not _loads(soname)]
        if self.for_tests and sys.platform.startswith("linux") and not shutil.which("Xvfb"):
            needs.append(Need("Xvfb, for the tests of the real window", "xvfb", False))
        return needs

    def _can_apt(self) -> bool:
        return os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get") is not None

    def _apt(self, packages: list[str]) -> None:
        print(f"installing system packages: {' '.join(packages)} ...", file=sys.stderr, flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "-qq", "-y", "--no-install-recommends", "install", *packages]
        for command in (["apt-get", "-qq", "update"], install):
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                self._apt_failed = (done.stderr.strip() or done.stdout.strip())[-1000:]

    def _advice(self, missing: list[Need]) -> str:
        lines = ["Missing on this system:"]
        lines += [f"  {need.what}" + ("" if need.is_vital else " (the window may not open)") for need in missing]
        packages = " ".join(need.package for need in missing)
        lines.append(f"On Debian or Ubuntu: sudo apt-get install {packages}")
        if not shutil.which("apt-get"):
            lines.append("On other systems the packages have similar names; `make` again when they are there.")
        if self._apt_failed:
            lines.append(f"apt-get failed: {self._apt_failed}")
        return "\n".join(lines)


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True
