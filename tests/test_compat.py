"""Supported versions, batches that fairseq-fixed leaves out, and the error type."""

import pytest

from fairseq_maskplugins.compat import check_versions, complete_batches
from fairseq_maskplugins.errors import UsageError


@pytest.mark.parametrize(
    "versions, named",
    [
        (((3, 14), None, "0.12.3.1", "2.13.0"), "Python 3.14 is not supported"),
        (((3, 10), "0.10.2", None, "2.7.0"), "fairseq 0.10.2 is not supported"),
        (((3, 10), "0.12.2", None, "2.6.0+cu124"), "torch 2.6.0\\+cu124 is too old"),
        (((3, 10), "0.12.2", None, None), "torch is not installed"),
        (((3, 12), None, None, "2.13.0"), "neither fairseq nor fairseq-fixed is installed"),
    ],
)
def test_unsupported_versions(versions, named):
    with pytest.raises(ValueError, match=named):
        raise ValueError(check_versions(*versions))


@pytest.mark.parametrize(
    "versions",
    [((3, 10), "0.12.2", None, "2.7.0"), ((3, 10), "0.12.2", None, "2.14.1"), ((3, 11), None, "0.12.3.1", "2.13.0+cpu")],
)
def test_supported_versions(versions):
    assert check_versions(*versions) is None


def test_complete_batches():
    indices = list(range(10))
    assert complete_batches(indices, [[0, 1, 2, 3], [4, 5, 6, 7]]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert complete_batches(indices, [indices]) == [indices]
    assert complete_batches(indices, []) == [indices]


def test_usage_error_is_one_line_and_two_things():
    error = UsageError("--x must be 1, got 2")
    assert isinstance(error, ValueError) and isinstance(error, SystemExit)
    assert str(error) == str(UsageError(str(error))) == "fairseq_maskplugins: --x must be 1, got 2"
