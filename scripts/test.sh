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
marks="not slow"
again="not spark and not once and not slow"  # what the second generation runs
runner="pytest"
while :; do
    case "${1:-}" in
        --all) marks="" again="not spark" ;;
        --coverage) runner="coverage run -m pytest" ;;
        *) break ;;
    esac
    shift
done
if [ "$runner" != pytest ]; then
    marks="not uncounted${marks:+ and $marks}"
    again="not uncounted and $again"
    export COVERAGE_FILE="$ROOT/.coverage-data/data"
    rm -rf "$ROOT/.coverage-data"
    mkdir "$ROOT/.coverage-data"
fi
failed=0
missing=""
checked=""

run_generation() { # NAME [pytest arguments]
    local name=$1 version="" python="" extras chosen=$marks
    shift
    for version in $GENERATION_PYTHONS; do
        python=$(find_python "$version") && break
    done
    if [ -z "$python" ]; then
        missing="$missing\nNOT TESTED: $name: no Python of $GENERATION_PYTHONS was found"
        return
    fi
    dir="$ROOT/.venv/test-$version"  # the last one counts the coverage
    # PySpark is large, and what it is used for has nothing to do with fairseq: the first generation tests it
    if [ -z "$checked" ]; then extras=test,spark; else extras=test chosen=$again; fi
    make_env "$dir" "$python" "$extras" || { echo "building the environment for $name failed" >&2; failed=1; return; }
    if [ -z "$checked" ]; then
        say "ruff"
        "$dir/bin/ruff" check . && "$dir/bin/ruff" format --check . || failed=1
        checked=yes
    fi
    say "tests with $name on Python $version"
    "$dir/bin/python" -m $runner -q -n "${MASKPLUGINS_TEST_WORKERS:-2}" --dist worksteal --durations 25 -m "$chosen" "$@" || failed=1
}

GENERATION_PYTHONS="3.11 3.12 3.13" run_generation "fairseq-fixed 0.12.3.1" "$@"
GENERATION_PYTHONS="3.10 3.9" run_generation "fairseq 0.12.2" "$@"
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
