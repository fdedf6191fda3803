"""The Python of the READMEs of DropToken, MAE and the embedding correction runs as it stands there."""

import re

import harness
import pytest


@pytest.mark.parametrize("room", ["drop_token", "mae", "correct_embeddings"])
def test_python_in_the_readme_runs(room):
    text = (harness.USER_DIR / room / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert blocks
    for block in blocks:
        exec(compile(block, f"{room}/README.md", "exec"), {})
