#!/usr/bin/env bash
# Set up both generations of fairseq, lint, and run the tests with each.
#
#   bash scripts/test.sh [--all] [pytest arguments]
#
# --all also runs the tests that are marked slow, and those marked once with both generations, as a nightly run should.
#
# Python 3.11 (else 3.12, 3.13) runs fairseq-fixed 0.12.3.1, Python 3.10 runs fairseq 0.12.2. If one of them is missing,
# only the other is tested, and a line at the end says so.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
export OMP_NUM_THREADS=1  # workers with several threads each fight for the cores
marks="not slow and not spark"
again="not slow and not spark and not once"  # for the second generation
extras=test                                  # PySpark is large: only installed if its tests run
if [ "${1:-}" = --all ]; then
    marks="" again="not spark" extras=test,spark
    shift
fi
failed=0
missing=""
checked=""
filling=""

choose_python() { # VERSION...: print the first version that is there, and its path
    local version python
    for version in "$@"; do
        python=$(find_python "$version") && echo "$version $python" && return
    done
    return 1
}

run_generation() { # NAME VERSION PYTHON EXTRAS MARKS [pytest arguments]
    local name=$1 dir="$ROOT/.venv/test-$2" version=$2 python=$3 extras=$4 chosen=$5
    shift 5
    make_env "$dir" "$python" "$extras" || { echo "building the environment for $name failed" >&2; failed=1; return; }
    if [ -z "$checked" ]; then
        say "ruff"
        "$dir/bin/ruff" check . && "$dir/bin/ruff" format --check . || failed=1
        checked=yes
    fi
    say "tests with $name on Python $version"
    "$dir/bin/python" -m pytest -q -n "${MASKPLUGINS_TEST_WORKERS:-2}" --dist worksteal --durations 25 -m "$chosen" "$@" || failed=1
}

newer=$(choose_python 3.11 3.12 3.13) || missing="$missing\nNOT TESTED: fairseq-fixed 0.12.3.1: no Python 3.11, 3.12 or 3.13 was found"
older=$(choose_python 3.10) || missing="$missing\nNOT TESTED: fairseq 0.12.2: no Python 3.10 was found"
if [ -n "$newer" ] && [ -n "$older" ] && [ ! -e "$ROOT/.venv/test-3.10/.maskplugins-stamp" ]; then
    # download the second environment's large parts while the first is built; errors are repeated, and seen, below
    fill_env "$ROOT/.venv/test-3.10" "${older#* }" >/dev/null 2>&1 &
    filling=$!
    trap 'pkill -P $filling; kill $filling' EXIT
fi
if [ -n "$newer" ]; then
    run_generation "fairseq-fixed 0.12.3.1" ${newer% *} "${newer#* }" "$extras" "$marks" "$@"
    extras=test
    marks=$again
fi
if [ -n "$older" ]; then
    [ -z "$filling" ] || wait "$filling"
    trap - EXIT
    run_generation "fairseq 0.12.2" ${older% *} "${older#* }" "$extras" "$marks" "$@"
fi
if [ -n "$missing" ]; then
    printf '\n!!!%b\n' "$missing" | tee /dev/stderr
fi
if [ "$failed" -ne 0 ]; then
    say "FAILED"
    exit 1
fi
[ -n "$checked" ] || { echo "no supported Python was found: nothing was tested" >&2; exit 1; }
say "all passed"
