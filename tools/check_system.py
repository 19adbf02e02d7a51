"""Says which system packages are missing, and the command that brings them.

`make` calls it before anything is installed: it needs the standard library alone, and runs on old
Pythons too, since saying that a Python is too old is one of its tasks. Prints nothing and exits
with 0 when all is there, else prints the command on stderr and exits with 1.
"""

import ctypes
import importlib.util
import platform
import sys

FIRST, LAST = (3, 11), (3, 13)

# The shared libraries that the wheels of llvmlite and tokenizers expect, with Debian's packages.
LIBRARIES = {"libstdc++.so.6": "libstdc++6", "libz.so.1": "zlib1g", "libgcc_s.so.1": "libgcc-s1"}


def missing_packages():
    """Debian packages that have to be installed first."""
    packages = []
    version = sys.version_info[:2]
    if not FIRST <= version <= LAST:
        packages += ["python3.11", "python3.11-venv"]
    elif importlib.util.find_spec("ensurepip") is None:
        packages.append("python{}.{}-venv".format(*version))
    if sys.platform == "linux":
        libraries = dict(LIBRARIES)
        if platform.machine() != "x86_64":
            # On x86-64 the worker pool's runtime comes as a wheel.
            libraries["libgomp.so.1"] = "libgomp1"
        for library, package in libraries.items():
            try:
                ctypes.CDLL(library)
            except OSError:
                packages.append(package)
    return packages


def main():
    packages = missing_packages()
    if not packages:
        return 0
    lines = (
        "relaxlab needs Python 3.11 to 3.13 with venv, and a few C libraries.",
        f"This is Python {platform.python_version()}, and something is missing. Install it with",
        "    sudo apt-get update && sudo apt-get install -y " + " ".join(packages),
        "or get all of it from conda: conda env create -f environment.yml",
    )
    sys.stderr.write("\n".join(lines) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
