"""Fisher information of a model's parameters: ``F_i = 1/n sum_j (d log p(y_j|x_j) / d theta_i)^2`` over n examples.

Source: arXiv 2109.05687, section on ChildTuning-D. Vectorised for parameters of one supported layer. The first examples are
also computed one at a time, and parameters for which both disagree (tied weights, functional calls, layers that see several
examples in a row) stay with one example at a time.
"""

import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from ..errors import UsageError
from .per_example import sums_of_squares, supported

LAYOUTS = ("first", "second", "rows")  # where the examples are in a layer's output
TOLERANCE = 1e-2  # relative, of a parameter's squared gradients in the root mean square
NOISE = 1e-11  # of the largest parameter's: float32 rounding, squared, with room

LossOf = Callable[[Any], torch.Tensor]


def arrange(x: torch.Tensor, layout: str, n: int, rows: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """Bring a layer's output into ``[n, T, C]`` (ids: ``[n, T]``), or None if it does not fit.

    Args:
        x: ``[n, T, C]``, ``[T, n, C]``, ``[n, C]``, or ``[R, C]`` with rows of several examples one after the other.
        rows: int64 ``[R]``, the example of each row, ascending.
    """
    if layout == "rows":
        if rows is None or x.dim() != 2 or len(rows) != len(x):
            return None
        counts = torch.bincount(rows, minlength=n)
        starts = counts.cumsum(0) - counts
        out = x.new_zeros(n, int(counts.max()), x.size(-1))
        out[rows, torch.arange(len(rows), device=x.device) - starts[rows]] = x
        return out
    if layout == "second":
        return x.transpose(0, 1) if x.dim() == 3 and x.size(1) == n else None
    if x.size(0) != n or x.dim() > 3:
        return None
    return x[:, None] if x.dim() == 2 else x


class Fisher:
    """Add up squared gradients of single examples in float64.

    Args:
        model: all modules whose layers count.
        params: the parameters by name, in the optimizer's order.
        ids_of: for an embedding and its input, the ids that it looks up, or None if the type is not known.
        vectorise: False computes one example at a time throughout.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        params: Dict[str, torch.nn.Parameter],
        ids_of: Callable[[torch.nn.Module, torch.Tensor], Optional[torch.Tensor]] = lambda module, x: x,
        vectorise: bool = True,
    ):
        self.model, self.params, self.ids_of, self.vectorise = model, params, ids_of, vectorise
        self.sums: Dict[str, torch.Tensor] = {}
        self.examples = 0
        self.layouts: Dict[torch.nn.Module, str] = {}  # layers that proved right, and how they are laid out
        self.loop: Optional[List[str]] = None  # parameters that go one example at a time; None before the first batch
        self._owned = self._find_layers() if vectorise else {}

    def _find_layers(self) -> Dict[torch.nn.Module, Dict[str, str]]:
        """The names of the parameters of each supported layer. Tied weights are tried too: the other layer may be unused."""
        names = {id(p): name for name, p in self.params.items()}
        owners: Dict[str, List[Tuple[torch.nn.Module, str]]] = {}
        for module in self.model.modules():
            for own, p in module._parameters.items():
                if p is not None and id(p) in names and supported(module):
                    owners.setdefault(names[id(p)], []).append((module, own))
        layers: Dict[torch.nn.Module, Dict[str, str]] = {}
        for name, places in owners.items():
            if len(places) == 1:
                layers.setdefault(places[0][0], {})[places[0][1]] = name
        return layers

    def add(self, loss_of: LossOf, batch: Any, singles: Sequence[Callable[[], Any]], rows: Optional[torch.Tensor] = None) -> None:
        """Add a batch.

        Args:
            loss_of: gives the loss of a batch, summed over its examples.
            singles: for each example, a function that gives the batch of it alone.
            rows: the example of each predicted row, for layers that see only those; see :func:`arrange`.
        """
        if self.loop is None:
            self._start(loss_of, batch, singles, rows)
            return
        if self.layouts:
            for name, value in self._vectorised(loss_of, batch, len(singles), rows, self.layouts).items():
                self._accumulate(name, value)
        if self.loop:
            for name, value in self._one_at_a_time(loss_of, singles, self.loop).items():
                self._accumulate(name, value)
        self.examples += len(singles)

    def _accumulate(self, name: str, value: torch.Tensor) -> None:
        if name not in self.sums:
            self.sums[name] = torch.zeros(value.shape, dtype=torch.float64, device=value.device)
        self.sums[name] += value

    def _start(self, loss_of: LossOf, batch: Any, singles: Any, rows: Any) -> None:
        truth = self._one_at_a_time(loss_of, singles, list(self.params))
        for name, value in truth.items():
            self._accumulate(name, value)
        self.examples += len(singles)
        # the bias of attention's keys has a gradient of 0 but for rounding, about which no two ways agree
        noise = NOISE * max((_root_mean_square(value) for value in truth.values()), default=0.0)
        for layout in LAYOUTS:
            left = {module: layout for module in self._owned if module not in self.layouts}
            if not left:
                break
            try:
                found = self._vectorised(loss_of, batch, len(singles), rows, left)
            except RuntimeError:  # a model that writes into a layer's output: one example at a time
                break
            for module in left:
                names = [name for name in self._owned[module].values() if name in truth]
                if names and all(name in found and _agree(found[name], truth[name], noise) for name in names):
                    self.layouts[module] = layout
        proven = {name for module in self.layouts for name in self._owned[module].values()}
        # one that had no gradient in any example is not counted
        self.loop = [name for name in truth if name not in proven]

    def _one_at_a_time(self, loss_of: LossOf, singles: Any, names: List[str]) -> Dict[str, torch.Tensor]:
        params = [self.params[name] for name in names]
        found: Dict[str, torch.Tensor] = {}
        for single in singles:
            loss = loss_of(single())
            if not loss.requires_grad:
                continue
            for name, grad in zip(names, torch.autograd.grad(loss, params, allow_unused=True)):
                if grad is not None:
                    grad = grad.float()
                    if name in found:
                        found[name].addcmul_(grad, grad)
                    else:
                        found[name] = grad * grad
        return found

    def _vectorised(self, loss_of: LossOf, batch: Any, n: int, rows: Any, layouts: Dict) -> Dict[str, torch.Tensor]:
        """``sum_b G_b^2`` for the parameters of the layers in ``layouts``; a layer that was called twice gives none."""
        found: Dict[str, torch.Tensor] = {}
        calls: Dict[torch.nn.Module, int] = {}

        def forward_hook(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
            calls[module] = calls.get(module, 0) + 1
            if not output.requires_grad:
                output.requires_grad_()  # no parameter below it does, so gradients would end above it
            output.register_hook(lambda grad: backward_hook(module, inputs[0].detach(), grad))
            return output.clone()  # attention scales its queries in place

        def backward_hook(module: torch.nn.Module, x: torch.Tensor, grad: torch.Tensor) -> None:
            own = self._owned[module]
            if isinstance(module, torch.nn.Embedding):
                x = self.ids_of(module, x)
                a = x if x is not None and x.dim() == 2 and len(x) == n and layouts[module] == "first" else None
            else:
                a = arrange(x.float(), layouts[module], n, rows)
            g = arrange(grad.detach().float(), layouts[module], n, rows)
            if a is not None and g is not None:
                for name, value in sums_of_squares(module, a, g, own).items():
                    found[own[name]] = value

        hooks = [module.register_forward_hook(forward_hook) for module in layouts]
        wanted = {id(p): p.requires_grad for p in self.params.values()}
        try:
            for p in self.params.values():  # gradients of weights are not needed, only those of activations
                p.requires_grad_(False)
            loss = loss_of(batch)
            if loss.requires_grad:
                loss.backward()
        finally:
            for p in self.params.values():
                p.requires_grad_(wanted[id(p)])
            for hook in hooks:
                hook.remove()
        for module, count in calls.items():
            if count > 1:
                for name in self._owned[module].values():
                    found.pop(name, None)
        return found

    def result(self) -> Dict[str, torch.Tensor]:
        """The averages, float32, of the parameters that had a gradient."""
        return {name: (value / max(self.examples, 1)).float() for name, value in self.sums.items()}


def _root_mean_square(x: torch.Tensor) -> float:
    return float(x.double().norm()) / max(x.numel(), 1) ** 0.5


def _agree(one: torch.Tensor, other: torch.Tensor, noise: float) -> bool:
    return _root_mean_square(one - other) <= TOLERANCE * _root_mean_square(other) + noise


def add_batch_gradient(fisher: Fisher, loss: torch.Tensor, n: int, clip_norm: float = 0.0) -> None:
    """The authors' approximation: add the squared gradient of the mean of ``loss`` (a sum over ``n`` examples), each tensor's
    clipped alone to ``clip_norm`` (0: not). ``fisher.examples`` then counts batches."""
    names = list(fisher.params)
    for name, grad in zip(names, torch.autograd.grad(loss / n, [fisher.params[x] for x in names], allow_unused=True)):
        if grad is not None:
            grad = grad.float()
            if clip_norm > 0:
                grad = grad * (clip_norm / (grad.norm() + 1e-6)).clamp(max=1.0)
            fisher._accumulate(name, grad * grad)
    fisher.examples += 1


def covered_names(names: Iterable[str], cover: str) -> List[str]:
    """Names that a cover includes: "all", "layers" (with "layer" in them, the authors' choice), or a regular expression."""
    if cover == "all":
        return list(names)
    try:
        pattern = re.compile("layer" if cover == "layers" else cover)
    except re.error as error:
        raise UsageError(f"--cover must be all, layers or a regular expression, got {cover!r}: {error}") from None
    return [name for name in names if pattern.search(name)]
