"""``maskplugins doctor``: installed versions, and known conflicts with the fix for each."""

import argparse
import importlib
import json
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .compat import check_versions, installed_version, version_tuple

PACKAGES = (
    *("fairseq", "fairseq-fixed", "torch", "numpy", "hydra-core", "omegaconf", "sentencepiece", "pip"),
    *("torchaudio", "transformers", "tokenizers", "safetensors", "duckdb", "pyspark"),
)
EXAMPLE = """examples:
  maskplugins doctor
  maskplugins doctor --json | python -m json.tool

Exit status 1 where something is broken, 0 where it is not; notes do not count.
"""
TRIED = ("torch", "numpy", "omegaconf", "hydra", "fairseq", "torchaudio")
OK, NOTE, BROKEN = "ok", "note", "broken"


class Finding(NamedTuple):
    """A line of the report: its level ("broken", "note" or "ok"), the finding, and the fix, if one is needed."""

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
    """Judge a Python version, versions of distributions (None: not installed), and errors of modules that fail to import."""
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
            'pip install "pip<24.1", then pip install torch "numpy<2" fairseq==0.12.2'
            if old
            else "pip install torch, then pip install --no-build-isolation fairseq-fixed==0.12.3.1"
        )
        if not (3, 10) <= python <= (3, 13):
            fix = "make an environment with Python 3.10 to 3.13"
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
            text = f"pip {versions['pip']} refuses the metadata of omegaconf 2.0.6: installing anything beside it may fail"
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
            found.append(Finding(BROKEN, f"{module} does not import: {error}", f"pip install --force-reinstall {module}"))
    if version("numpy") >= (2, 0):
        text = f"numpy {versions['numpy']}: fairseq's own masked_lm fails with --sample-break-mode eos (np.compat.long is gone)"
        found.append(Finding(NOTE, text, 'use --task decoupled_mlm, which has no such trouble, or pip install "numpy<2"'))
    if not has("sentencepiece"):
        text = "sentencepiece is not installed: --bpe sentencepiece can't be used"
        found.append(Finding(NOTE, text, "pip install sentencepiece"))
    return found or [Finding(OK, f"nothing wrong with {here} and {generation(versions)}")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")


def run(args: argparse.Namespace) -> int:
    versions = {name: installed_version(name) for name in PACKAGES}
    failures = {}
    for module in TRIED:
        if module in ("fairseq", "torch", "numpy") or versions.get({"hydra": "hydra-core"}.get(module, module)):
            error = _try(module)
            if error:
                failures[module] = error
    findings = examine(sys.version_info[:2], versions, failures)
    report = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "generation": generation(versions),
        "versions": versions,
        "gpus": _gpus() if "torch" not in failures else [],
        "findings": [finding._asdict() for finding in findings],
        "ok": all(finding.level != BROKEN for finding in findings),
    }
    if args.json:
        print(json.dumps(report))
    else:
        _show(report)
    return 0 if report["ok"] else 1


def _try(module: str) -> Optional[str]:
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever a broken package raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return None


def _gpus() -> list:
    import torch

    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _show(report: Dict[str, Any]) -> None:
    print(f"Python {report['python']}, {report['generation'] or 'no fairseq'}")
    print(", ".join(f"{name} {version}" for name, version in report["versions"].items() if version))
    print("GPUs: " + (", ".join(report["gpus"]) or "none that torch can use; training runs with --cpu"))
    for finding in report["findings"]:
        print(f"{finding['level']}: {finding['what']}" + (f"\n  fix: {finding['fix']}" if finding["fix"] else ""))
