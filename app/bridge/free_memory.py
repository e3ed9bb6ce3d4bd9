"""How much memory is free on this computer, from the system itself."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path


def free_memory_bytes() -> int:
    """Return the bytes that a program can take without others being pushed to disk; 0 where the system does not say.

    Thread: any; on macOS it waits for a small program.
    """
    try:
        if sys.platform == "win32":
            return _windows()
        if sys.platform == "darwin":
            return _macos()
        return _linux()
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _linux() -> int:
    # Source: proc(5), MemAvailable in kB.
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _macos() -> int:
    # Source: vm_stat(1); speculative pages are counted among the free ones.
    text = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, check=True, timeout=5).stdout
    size = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|purgeable):\s+(\d+)\.", text, re.MULTILINE)
    return int(size[1]) * sum(map(int, pages)) if size else 0


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX. Source: learn.microsoft.com, sysinfoapi.h."""

    _fields_ = (
        ("dwLength", ctypes.c_uint32),
        ("dwMemoryLoad", ctypes.c_uint32),
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("ullTotalPhys", "ullAvailPhys", "ullTotalPageFile", "ullAvailPageFile"),
                *("ullTotalVirtual", "ullAvailVirtual", "ullAvailExtendedVirtual"),
            )
        ),
    )


def _windows() -> int:
    status = _MemoryStatus()
    status.dwLength = ctypes.sizeof(status)
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009  (not declared on other systems)
    if not kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0
    return int(status.ullAvailPhys)
