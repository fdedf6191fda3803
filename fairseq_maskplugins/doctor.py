"""What ``maskplugins doctor`` looks at: installed versions, and known conflicts with the fix for each (no fairseq here)."""

from typing import Dict, List, NamedTuple, Optional, Tuple

from .compat import check_versions, version_tuple

PACKAGES = (
    *("fairseq", "fairseq-fixed", "torch", "numpy", "hydra-core", "omegaconf", "sentencepiece", "pip"),
    *("torchaudio", "transformers", "tokenizers", "safetensors", "duckdb", "pyspark"),
)
OK, NOTE, BROKEN = "ok", "note", "broken"


class Finding(NamedTuple):
    """One line of the report.

    Attributes:
        level: ``"broken"``: training can't work; ``"note"``: something does not; ``"ok"``.
        what: what was found.
        fix: what mends it; empty where nothing has to be.
    """

    level: str
    what: str
    fix: str = ""


def generation(versions: Dict[str, Optional[str]]) -> Optional[str]:
    """Which fairseq: ``"fairseq-fixed 0.12.3.1"``, ``"fairseq 0.12.2"``, or None."""
    for name in ("fairseq-fixed", "fairseq"):
        if versions.get(name):
            return f"{name} {versions[name]}"
    return None


def examine(python: Tuple[int, int], versions: Dict[str, Optional[str]], failures: Dict[str, str]) -> List[Finding]:
    """Judge a combination.

    Args:
        python: major and minor version.
        versions: version by distribution, None where it is not installed.
        failures: the error of each module that could not be imported, by name.
    """
    found = []
    here = f"Python {python[0]}.{python[1]}"

    def has(name: str) -> bool:
        return versions.get(name) is not None

    def version(name: str) -> Tuple[int, ...]:
        return version_tuple(versions.get(name) or "")

    problem = check_versions(python, versions.get("fairseq"), versions.get("fairseq-fixed"), versions.get("torch"))
    if problem:
        old = python < (3, 11)
        fix = (
            'pip install "pip<24.1", then pip install torch==1.12.1 torchaudio==0.12.1 "numpy<2" fairseq==0.12.2'
            if old
            else "pip install torch, then pip install --no-build-isolation fairseq-fixed==0.12.3.1"
        )
        if not (3, 9) <= python <= (3, 13):
            fix = "make an environment with Python 3.9 to 3.13"
        found.append(Finding(BROKEN, problem, fix))
    if has("fairseq") and has("fairseq-fixed"):
        text = "fairseq and fairseq-fixed are both installed: two packages that write to one folder"
        fix = "pip uninstall fairseq fairseq-fixed, then install the one that goes with this Python"
        found.append(Finding(BROKEN, text, fix))
    elif has("fairseq"):
        if version("hydra-core") >= (1, 1) or version("omegaconf") >= (2, 1):
            text = f"fairseq 0.12.2 needs hydra-core below 1.1 and omegaconf below 2.1, found {versions.get('hydra-core')} and "
            text += f"{versions.get('omegaconf')}"
            found.append(Finding(BROKEN, text, 'pip install "pip<24.1" and then hydra-core==1.0.7 omegaconf==2.0.6'))
        if version("pip") >= (24, 1):
            text = (
                f"pip {versions['pip']} refuses the metadata of omegaconf 2.0.6: installing anything beside it may fail"
            )
            found.append(Finding(NOTE, text, 'pip install "pip<24.1"'))
    elif has("fairseq-fixed") and has("hydra-core") and version("hydra-core") < (1, 3):
        text = f"fairseq-fixed needs hydra-core 1.3, found {versions['hydra-core']}"
        found.append(Finding(BROKEN, text, "pip install hydra-core==1.3.2 omegaconf==2.3.0"))
    for module, error in failures.items():
        if module == "torchaudio":
            text = f"torchaudio {versions.get('torchaudio')} does not load ({error}): pipelines of transformers 5 fail"
            fix = "pip uninstall torchaudio: masked language models don't use it"
            found.append(Finding(NOTE, text, fix))
        else:
            found.append(
                Finding(BROKEN, f"{module} does not import: {error}", f"pip install --force-reinstall {module}")
            )
    if version("numpy") >= (2, 0):
        text = f"numpy {versions['numpy']}: fairseq's own masked_lm fails with --sample-break-mode eos (np.compat.long is gone)"
        found.append(
            Finding(NOTE, text, 'use --task decoupled_mlm, which has no such trouble, or pip install "numpy<2"')
        )
    if has("torch") and version("torch") < (2, 6):
        text = f"torch {versions['torch']} by itself loads checkpoints without protection: they can run code"
        fix = "none needed where this package is loaded, which protects; elsewhere load checkpoints of people you trust"
        found.append(Finding(NOTE, text, fix))
    if not has("sentencepiece"):
        text = "sentencepiece is not installed: --bpe sentencepiece can't be used"
        found.append(Finding(NOTE, text, "pip install sentencepiece"))
    return found or [Finding(OK, f"nothing wrong with {here} and {generation(versions)}")]
