#!/usr/bin/env bash
# Set up both generations of fairseq, check the code's form, and run the tests in each.
#
#   bash scripts/test.sh [--all] [--coverage] [pytest arguments]
#
# --all also runs the tests that are marked slow, and those marked once in both generations, as a nightly run should.
# --coverage counts the lines and branches of the package that either generation ran, in a run that takes somewhat longer,
# prints what is left by file, and fails below 95%.
#
# Python 3.11 (else 3.12, 3.13) runs fairseq-fixed 0.12.3.1, Python 3.10 (else 3.9) runs fairseq 0.12.2. Where one of the
# two Pythons is missing, the other is tested, and a line at the end says so.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
export OMP_NUM_THREADS=1  # workers with several threads each fight for the cores
marks="not slow and not spark"
again="not slow and not spark and not once"  # what the second generation runs
extras=test                                  # PySpark is large: it comes where its tests run
runner="pytest"
while :; do
    case "${1:-}" in
        --all) marks="" again="not spark" extras=test,spark ;;
        --coverage) runner="coverage run -m pytest" ;;
        *) break ;;
    esac
    shift
done
if [ "$runner" != pytest ]; then
    # what runs with PySpark counts
    if [ -z "$marks" ]; then marks="not uncounted"; else marks="not uncounted and not slow"; fi
    again="not uncounted and $again"
    extras=test,spark
    export COVERAGE_FILE="$ROOT/.coverage-data/data"
    rm -rf "$ROOT/.coverage-data"
    mkdir "$ROOT/.coverage-data"
fi
failed=0
missing=""
filling=""
checked=""

choose_python() { # VERSION...: print the first version that is there, and its path
    local version python
    for version in "$@"; do
        python=$(find_python "$version") && echo "$version $python" && return
    done
    return 1
}

run_generation() { # NAME VERSION PYTHON EXTRAS MARKS [pytest arguments]
    local name=$1 version=$2 python=$3 extras=$4 chosen=$5
    shift 5
    dir="$ROOT/.venv/test-$version"  # the last one counts the coverage
    make_env "$dir" "$python" "$extras" || { echo "building the environment for $name failed" >&2; failed=1; return; }
    if [ -z "$checked" ]; then
        say "ruff"
        "$dir/bin/ruff" check . && "$dir/bin/ruff" format --check . || failed=1
        checked=yes
    fi
    say "tests with $name on Python $version"
    "$dir/bin/python" -m $runner -q -n "${MASKPLUGINS_TEST_WORKERS:-2}" --dist worksteal --durations 25 -m "$chosen" "$@" || failed=1
}

newer=$(choose_python 3.11 3.12 3.13) || missing="$missing\nNOT TESTED: fairseq-fixed 0.12.3.1: no Python 3.11, 3.12 or 3.13 was found"
older=$(choose_python 3.10 3.9) || missing="$missing\nNOT TESTED: fairseq 0.12.2: no Python 3.10 or 3.9 was found"
if [ -n "$newer" ] && [ -n "$older" ] && [ ! -e "$ROOT/.venv/test-${older% *}/.maskplugins-stamp" ]; then
    # the second environment's large parts come while the first is built; what goes wrong there is tried again below, and seen
    fill_env "$ROOT/.venv/test-${older% *}" "${older#* }" >/dev/null 2>&1 &
    filling=$!
    trap 'pkill -P $filling; kill $filling' EXIT
fi
if [ -n "$newer" ]; then
    run_generation "fairseq-fixed 0.12.3.1" ${newer% *} "${newer#* }" "$extras" "$marks" "$@"
fi
if [ -n "$older" ]; then
    [ -z "$filling" ] || wait "$filling"
    trap - EXIT
    if [ -n "$newer" ]; then extras=test; else again=$marks; fi
    run_generation "fairseq 0.12.2" ${older% *} "${older#* }" "$extras" "$again" "$@"
fi
if [ "$runner" != pytest ] && [ -n "$checked" ]; then
    say "coverage"
    "$dir/bin/python" -m coverage combine -q && "$dir/bin/python" -m coverage report --fail-under 95 || failed=1
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
