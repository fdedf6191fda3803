# Shared by quickstart.sh and test.sh: finding Pythons and building virtual environments. Source it, don't run it.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '\n== %s\n' "$*"; }

# find_python 3.11: print the path of a Python of that version, or fail
find_python() {
    local candidate
    for candidate in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python python3 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$1" ]; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# stamp_of EXTRAS: what decides an environment's content, as one word
stamp_of() { echo "$(cat "$ROOT/setup.py" "$ROOT/scripts/lib.sh" | cksum | tr -d ' ')-$1"; }

# fill_env DIR PYTHON: a virtual environment with the fairseq that goes with this Python. It leaves the checkout alone, so
# that several may be filled at a time. An interrupted one is finished.
fill_env() {
    local dir=$1 python=$2 version pip fairseq=fairseq-fixed==0.12.3.1 numpy=numpy
    version=$("$python" -c 'import sys; print("%d%02d" % sys.version_info[:2])')
    [ "$version" -ge 311 ] || { fairseq=fairseq==0.12.2 numpy='numpy<2'; }
    # an environment that was interrupted while it was made has a Python and no pip
    "$dir/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$dir" || return 1
    pip="$dir/bin/python -m pip install -q --disable-pip-version-check"
    # omegaconf 2.0.6, which fairseq 0.12.2 needs, has metadata that newer pips refuse
    [ "$version" -ge 311 ] || $pip 'pip<24.1' || return 1
    # MASKPLUGINS_TORCH chooses another build of torch, for example one for your CUDA version
    $pip "${MASKPLUGINS_TORCH:-torch==2.13.0}" "$numpy" cython 'setuptools<81' wheel || return 1
    # in isolation, pip would fetch a second torch only to compile fairseq-fixed; fairseq 0.12.2 needs isolation, because
    # where it sees torch it compiles files that its source package lacks
    [ "$version" -lt 311 ] || $pip --no-build-isolation "$fairseq" || return 1
    $pip "$fairseq" "$numpy" || return 1
}

# make_env DIR PYTHON EXTRAS: the same with this package. Done once: a stamp in it says so.
make_env() {
    local dir=$1 python=$2 extras=$3
    if [ "$(cat "$dir/.maskplugins-stamp" 2>/dev/null)" = "$(stamp_of "$extras")" ]; then
        echo "environment $dir is ready"
        return 0
    fi
    say "building environment $dir with $("$python" --version) (some minutes the first time)"
    fill_env "$dir" "$python" || return 1
    "$dir/bin/python" -m pip install -q --disable-pip-version-check -e "$ROOT[$extras]" || return 1
    stamp_of "$extras" >"$dir/.maskplugins-stamp"
}
