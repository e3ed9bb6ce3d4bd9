#!/bin/sh
# Run a script with a Python that is new enough: $PYTHON, the one of .venv, python3, or a versioned one beside it.
for python in ${PYTHON:-} .venv/bin/python python3 python3.14 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" "$@"
    fi
done
echo "Causerie needs Python 3.11 or newer, and none was found: install it, or name it with PYTHON=/path/to/python3." >&2
exit 1
