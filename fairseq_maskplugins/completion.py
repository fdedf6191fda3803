"""``maskplugins completion``: a script that lets the shell complete commands and options."""

import argparse
from typing import Any, Dict, List

from .cli import COMMANDS, load_command

EXAMPLE = """examples:
  maskplugins completion bash >> ~/.bashrc
  maskplugins completion zsh >> ~/.zshrc

The script is fixed text: completing starts no Python. Print it again after an update.
"""
SCRIPT = """# maskplugins completion
_maskplugins() {
    local word=${COMP_WORDS[COMP_CWORD]} options="" previous=${COMP_WORDS[COMP_CWORD-1]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]} $previous" in
@CHOICES@
    esac
    case "${COMP_WORDS[1]}" in
@OPTIONS@
    esac
    COMPREPLY=()
    if [[ "$word" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    fi
}
complete -o default -F _maskplugins maskplugins
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell to print it for")


def run(args: argparse.Namespace) -> None:
    parsers: Dict[str, Any] = {}
    for name in COMMANDS:
        parsers[name] = argparse.ArgumentParser()
        load_command(name).add_arguments(parsers[name])
    print(make_script(parsers, args.shell), end="")


def make_script(parsers: Dict[str, argparse.ArgumentParser], shell: str) -> str:
    """The script for commands and the options of each."""
    options: List[str] = []
    choices: List[str] = []
    for name, parser in parsers.items():
        flags = sorted(parser._option_string_actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for sub, inner in action.choices.items():
                    inner.add_all()
                    flags = sorted({*flags, *inner._option_string_actions})
                    choices.append(_case(f'"{name} {name}"', " ".join(action.choices))) if sub else None
            elif action.choices:
                before = action.option_strings or [name]
                choices += [_case(f'"{name} {flag}"', " ".join(map(str, action.choices))) for flag in before]
        options.append(f'        {name}) options="{" ".join(flags)}" ;;')
    script = SCRIPT.replace("@COMMANDS@", " ".join(parsers)).replace("@OPTIONS@", "\n".join(options))
    script = script.replace("@CHOICES@", "\n".join(dict.fromkeys(choices)))
    return ("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script


def _case(pattern: str, words: str) -> str:
    return f'        {pattern}) COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
