"""``maskplugins`` commands killed, or out of disk, at the moments they change files: results are whole or not there."""

import fault_commands as commands
import fault_moments as moments
import pytest
from fault_case import EACH, assert_one_line
from fault_choice import choose


@pytest.mark.parametrize("name", EACH)
def test_killed(name, cases):
    case = cases(name)
    renames = [event.number for event in case.events if event.call.startswith("rename")]
    for moment in choose(name, range(1, len(case.events) + 1), 1, always=renames[-1:]):
        done = case.run(moments.kill_at(moment))
        assert done.returncode == -9, done.text
        case.check()
    case.check_undone()


@pytest.mark.parametrize("name", EACH)
def test_full_disk(name, cases):
    case = cases(name)
    spacious = [event.number for event in case.events if event.needs_space]
    for moment in choose(name, spacious, 1, always=spacious[:1]):
        check_full(case, moment)
    case.check_undone()


def check_full(case, moment):
    done = case.run(moments.full_from(moment))
    assert done.returncode == 1, done.text
    assert_one_line(done.text, str(case.out))
    case.check(litter=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", commands.TOOLS)
def test_every_moment(name, cases):
    """Of the calls on one file in a row the first, the last, and some between."""
    case = cases(name)
    paths = [None, *(event.path for event in case.events), None]
    edges = [n for n in range(1, len(paths) - 1) if paths[n] != paths[n - 1] or paths[n] != paths[n + 1]]
    for moment in choose(f"{name} every", range(1, len(paths) - 1), 8, always=edges):
        case.reset()
        done = case.run(moments.kill_at(moment))
        assert done.returncode == -9, done.text
        case.check()
        case.check_undone()
        if case.events[moment - 1].needs_space:
            case.reset()
            check_full(case, moment)
            case.check_undone()
