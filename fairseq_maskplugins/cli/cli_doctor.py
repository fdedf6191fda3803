"""``maskplugins doctor``."""

import argparse
import importlib
import json
import sys
from typing import Any, Dict, Optional

from ..compat import installed_version
from ..doctor import BROKEN, PACKAGES, examine, generation

EXAMPLE = """examples:
  maskplugins doctor
  maskplugins doctor --json | python -m json.tool

Exit status 1 where something is broken, 0 where it is not; notes do not count.
"""
READS_USER_DIR = True  # looks before anything else is imported
TRIED = ("torch", "numpy", "omegaconf", "hydra", "fairseq", "torchaudio")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
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
