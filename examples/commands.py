"""Shared by the recipes: commands that are printed or run, and atomic file writes."""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple, Union

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ROOT / "fairseq_maskplugins"
SIZES = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads", "max_positions")
SWITCHES = ("encoder_normalize_before", "layernorm_embedding", "untie_weights_roberta")


def begin(main: Callable[[], Any]) -> None:
    """Call a recipe's ``main``; if the reader of its output has seen enough, as ``head`` has, end quietly."""
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def require(*modules: str) -> None:
    """Stop before any work where what is needed at its end is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} is needed: pip install {' '.join(missing)}")


def train_command(data: Union[str, Path], *options: Any, user_dir: Path = PLUGINS) -> List[str]:
    """``fairseq-train``, of the Python that runs this."""
    return [sys.executable, "-m", "fairseq_cli.train", str(data), "--user-dir", str(user_dir), *map(str, options)]


def quote(command: Sequence[Any]) -> str:
    """A command as a line for the shell."""
    return " ".join(shlex.quote(str(part)) for part in command)


def call(command: Sequence[Any], log: Path, append: bool = False, **environment: str) -> str:
    """Run a command in the checkout's top folder, its output in a file; returns that text.

    Raises:
        SystemExit: it failed; with the end of what it printed.
    """
    environment = {**os.environ, **environment}
    path = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    with open(log, "a" if append else "w", encoding="utf-8") as file:
        words = [str(part) for part in command]
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=environment)
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    if done.returncode != 0:
        sys.exit(f"{text[-3000:]}\n{log}: the command failed, with exit status {done.returncode}: {quote(words)[:200]}")
    return text


def write(path: Union[str, Path], text: str) -> None:
    """Write a file atomically."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def split_more(arguments: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Arguments before ``--``, and those behind it, which go on to fairseq-train."""
    arguments = list(arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def model_options(checkpoint: Union[str, Path], arch: str = "roberta") -> List[str]:
    """The options of fairseq-train that give a model of the sizes that a checkpoint of RoBERTa records.

    Args:
        checkpoint: of ``roberta``, ``droptoken_roberta`` or ``mae_roberta``.
        arch: ``roberta`` or ``droptoken_roberta``.
    """
    sys.path.insert(0, str(ROOT))
    from fairseq_maskplugins.checkpoints import read_checkpoint
    from fairseq_maskplugins.correct_embeddings.checkpoint import option_of

    state = read_checkpoint(str(checkpoint))
    model = {name: option_of(state, "model", name) for name in SIZES + SWITCHES}
    missing = [name for name in SIZES if model[name] is None]
    if missing:
        sys.exit(f"{checkpoint}: does not record {', '.join(missing)}: it is no RoBERTa of fairseq")
    if model["encoder_normalize_before"] and not model["layernorm_embedding"]:
        arch += "_prenorm"  # no option switches the embedding's norm off
    options = ["--arch", arch, *(f"--{name.replace('_', '-')}" for name in SWITCHES if model[name])]
    return options + [part for name in SIZES for part in (f"--{name.replace('_', '-')}", str(model[name]))]
