"""The wheel and the source archive build, are whole, and work where they are installed."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.slow

NOT_COPIED = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "quickstart-run", "outputs")


def call(command, cwd, **kwargs):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Folder with the source archive and the wheel, which is built from the archive. The checkout stays as it is."""
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(harness.ROOT, source, ignore=NOT_COPIED)
    out = tmp_path_factory.mktemp("dist")
    # without isolation: the build's own environment would come over the network
    call([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source], cwd=out)
    return out


@pytest.fixture(scope="module")
def installed(archives, tmp_path_factory):
    """Python of a throwaway environment with the wheel and fairseq in its site-packages; the rest is borrowed."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    venv.create(folder)
    python = folder / "bin" / "python"
    site = Path(call([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    borrowed = Path(sysconfig.get_path("purelib"))
    for package in ("fairseq", "fairseq_cli"):
        shutil.copytree(borrowed / package, site / package)
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    wheel = next(archives.glob("*.whl"))
    call([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel], folder)
    return python


def test_descriptions_are_valid(archives):
    call([sys.executable, "-m", "twine", "check", "--strict", *archives.iterdir()], cwd=archives)


def test_the_wheel_is_the_package(archives):
    names = set(zipfile.ZipFile(next(archives.glob("*.whl"))).namelist())
    expected = {
        str(path.relative_to(harness.ROOT))
        for path in harness.USER_DIR.rglob("*")
        if path.suffix in (".py", ".md") and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_source_archive_is_whole(archives, tmp_path):
    """Its tests run from it, those of the pages' links among them: so pages, examples and scripts are there."""
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path)
    (root,) = tmp_path.iterdir()
    tests = ["tests/test_rates.py", "tests/test_doc_links.py", "tests/test_picture.py"]
    call([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=root)
    for name in ("LICENSE", "CITATION.cff", "scripts/test.sh", "benchmarks/masking.py", "examples/config/mae_cpu.yaml"):
        assert (root / name).is_file()


def test_user_dir_by_name_from_any_folder(installed, corpus, tmp_path):
    """``--user-dir fairseq_maskplugins`` is looked up beside the installed fairseq."""
    options = [*harness.TINY, *harness.MLM, "--max-update", "2", "--save-dir", "run", "--user-dir", "fairseq_maskplugins"]
    text = call([installed, "-m", "fairseq_cli.train", corpus / "bin", *options], cwd=tmp_path)
    assert "done training" in text
    assert (tmp_path / "run" / "checkpoint_last.pt").is_file()
    place = call([installed, "-c", "import fairseq_maskplugins as m; print(m.__file__)"], cwd=tmp_path).split()[-1]
    assert installed.parent.parent in Path(place).parents


def test_commands_of_the_installed_package(installed, corpus, tmp_path):
    tool = installed.parent / "maskplugins"
    assert "fairseq" in call([tool, "doctor"], cwd=tmp_path)
    assert "sequence 0: " in call([tool, "show-masks", corpus / "bin", "--rows", "1"], cwd=tmp_path)
