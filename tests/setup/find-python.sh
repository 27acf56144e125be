#!/usr/bin/env bash
# Prints the path of a CPython of the given version ("3.12"), or of the newest supported one if none is
# given. Looks on PATH, then where pyenv keeps its versions.
set -eu

runs() { "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2>/dev/null; }

find_version() {
    local candidate
    for candidate in "python$1" python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        candidate=$(command -v "$candidate") || continue
        if runs "$candidate" "$1"; then
            # Resolves a shim to the program itself, from which a venv can be made.
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

for version in ${1:-3.13 3.12 3.11}; do
    if find_version "$version"; then exit 0; fi
done
echo "no Python ${1:-3.11, 3.12 or 3.13} found: install it, or put it on PATH" >&2
exit 1
