#!/usr/bin/env bash
# Run a command that runs all parts of the tests, and end with how long each part took and what was
# skipped, with the reason. Fails as the command does. As root nothing may be skipped.
# Usage: summary.sh COMMAND…
set -u

# `make -n` runs this script too, to show the commands.
flags=${MAKEFLAGS-}
case ${flags%% *} in -*) ;; *n*) exec "$@" ;; esac

mkdir -p build
: >build/parts
: >build/skipped
export WATM_SKIPPED=$PWD/build/skipped
begin=$SECONDS status=0
"$@" || status=$?
# Debian's versions depend on the release of the machine, so the summary records them.
if command -v dpkg-query >/dev/null; then
    awk '!/^#/ { print $2 }' tests/setup/packages | sort -u | xargs dpkg-query -W >build/packages 2>/dev/null
fi
echo
echo "parts, of which two run side by side:"
cat build/parts
printf '%6d s  in all\n' $((SECONDS - begin))
if [ -s build/skipped ]; then
    echo
    echo "skipped: $(wc -l <build/skipped) tests"
    # TEST<tab>REASON, shown as the number of tests of each folder for a reason.
    awk -F'\t' '{ split($1, path, "/"); folder = path[1] "/" path[2]; count[folder ": " $2]++ }
        END { for (each in count) printf "%6d    %s\n", count[each], each }' build/skipped | sort -k2
    echo "each by its name: build/skipped"
    if [ "$(id -u)" = 0 ] && [ $status = 0 ]; then
        echo "as root nothing may be skipped"
        status=1
    fi
fi
exit $status
