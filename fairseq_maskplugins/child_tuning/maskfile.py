"""Fisher values and masks in files: safetensors, one tensor for each covered parameter, and a manifest.

The manifest (JSON in the file's metadata) lists all parameters of the model in the optimizer's order, with name, shape
and whether they are covered, and how the file came about. A tensor is float32 (Fisher values) or boolean (a mask).
"""

import json
import math
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from ..errors import UsageError, one_line
from ..files import replacing
from .select import count_kept, select_top

KINDS = ("fisher", "mask")
VERSION = 1


def require_safetensors() -> Any:
    """The library, or one line that says how to get it."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise UsageError("reading and writing masks needs safetensors: pip install 'fairseq_maskplugins[fisher]'") from None
    return safetensors


def write(path: str, kind: str, tensors: Dict[str, np.ndarray], manifest: Dict[str, Any]) -> None:
    """Write a file of ``kind`` "fisher" or "mask" atomically: the covered tensors by name, and a manifest with ``parameters``,
    a list of ``{"name", "shape", "covered"}`` in the optimizer's order."""
    safetensors = require_safetensors()
    metadata = {"maskplugins": kind, "version": str(VERSION), "manifest": json.dumps(manifest, sort_keys=True)}
    with replacing(path, also=(safetensors.SafetensorError,)) as temporary:
        safetensors.numpy.save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, temporary, metadata)


def read(path: str, kind: str) -> Tuple[Dict[str, Any], Dict[str, np.ndarray]]:
    """Read manifest and tensors of a file.

    Raises:
        UsageError: the file is missing, damaged, or of another kind.
    """
    safetensors = require_safetensors()
    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such file; 'maskplugins fisher' writes it")
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("maskplugins") not in KINDS or not metadata.get("version", "").isdigit():
                raise UsageError(f"{path}: not a file of 'maskplugins fisher'")
            if metadata["maskplugins"] != kind:
                raise UsageError(f"{path}: holds a {metadata['maskplugins']}, expected a {kind}")
            if int(metadata["version"]) > VERSION:
                raise UsageError(f"{path}: version {metadata['version']} of the format, this reads up to {VERSION}")
            manifest = json.loads(metadata["manifest"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        problem = _find_problem(manifest, tensors, kind)
    except UsageError:
        raise
    except Exception as error:  # safetensors and numpy raise of many kinds, for types that numpy does not have, say
        raise UsageError(f"{path}: can't read it, it is damaged or cut off: {one_line(error, 200)}") from None
    if problem:
        raise UsageError(f"{path}: damaged: {problem}")
    return manifest, tensors


def _find_problem(manifest: Any, tensors: Dict[str, np.ndarray], kind: str) -> str:
    """Describe where manifest and tensors disagree; empty if they don't."""
    if kind == "mask" and not 0 < manifest["reserve_p"] <= 1:
        return f"reserve_p must lie in (0, 1], got {manifest['reserve_p']}"
    covered = {p["name"]: list(p["shape"]) for p in manifest["parameters"] if p["covered"]}
    if covered.keys() != tensors.keys():
        return f"tensor and manifest disagree about {min(covered.keys() ^ tensors.keys())}"
    expected = np.dtype(bool if kind == "mask" else np.float32)
    for name, tensor in tensors.items():
        if tensor.dtype != expected:
            return f"{name} must be of type {expected}, got {tensor.dtype}"
        if list(tensor.shape) != covered[name]:
            return f"the shape of {name} is {list(tensor.shape)}, {covered[name]} in the manifest"
    return ""


def check_parameters(path: str, manifest: Dict[str, Any], shapes: Optional[Sequence[Sequence[int]]], total: int) -> None:
    """Compare a manifest with the optimizer's parameters, in order, and name the first difference. ``shapes`` is None for a flat
    copy, of which only the ``total`` number of entries is known."""
    remedy = "the mask is for another model or another fairseq, or other parameters are frozen"
    parameters = manifest["parameters"]
    for index, (parameter, shape) in enumerate(zip(parameters, shapes or ())):
        if list(parameter["shape"]) != list(shape):
            raise UsageError(
                f"{path}: parameter {index} is {parameter['name']} of shape {list(parameter['shape'])} in the mask and "
                f"of shape {list(shape)} in the model; {remedy}"
            )
    if shapes is not None and len(shapes) != len(parameters):
        at = min(len(shapes), len(parameters))
        more = (
            f"after which the mask goes on with {parameters[at]['name']}"
            if at < len(parameters)
            else f"after which the model goes on with a parameter of shape {list(shapes[at])}"
        )
        raise UsageError(f"{path}: mask and model agree on {at} parameters, {more}; {remedy}")
    expected = sum(math.prod(parameter["shape"]) for parameter in parameters)
    if expected != total:
        raise UsageError(f"{path}: the mask is for {expected} entries, the model has {total}; {remedy}")


def selected_tensors(manifest: Dict[str, Any], tensors: Dict[str, np.ndarray]) -> List[Optional[torch.Tensor]]:
    """Boolean tensors in the optimizer's order; None where a parameter is not covered. A parameter that had no gradient
    counts as not selected: nothing in the task moves it."""
    masks: List[Optional[torch.Tensor]] = []
    for parameter in manifest["parameters"]:
        if parameter["covered"]:
            masks.append(torch.from_numpy(tensors[parameter["name"]]))
        elif parameter.get("no_gradient"):
            masks.append(torch.zeros(tuple(parameter["shape"]), dtype=torch.bool))
        else:
            masks.append(None)
    return masks


def write_mask(path: str, manifest: Dict[str, Any], tensors: Dict[str, Any], reserve_p: float) -> Dict[str, Any]:
    """Select the top ``reserve_p`` of the Fisher values and write the mask; returns what is reported of it."""
    names = [p["name"] for p in manifest["parameters"] if p["covered"]]
    selected = select_top([tensors[name] for name in names], reserve_p, names)
    total = sum(tensors[name].size for name in names)
    kept = count_kept(total, reserve_p)
    manifest = {**manifest, "reserve_p": reserve_p, "covered_entries": total, "kept_entries": kept}
    write(path, "mask", dict(zip(names, selected)), manifest)
    print(f"{path}: {kept} of {total} covered entries kept ({kept / total:.4%})")
    return {"mask": path, "reserve_p": reserve_p, "kept": kept, "covered": total}
