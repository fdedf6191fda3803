"""Package metadata. Which fairseq goes with which Python: see README.md, "Install"."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "fairseq_maskplugins/__init__.py").read_text()).group(1)

setup(
    name="fairseq_maskplugins",
    version=VERSION,
    description="Masking methods for fairseq: decoupled rates, maskers, keyed masks, loaded with --user-dir",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_maskplugins", "fairseq_maskplugins.*"]),
    package_data={"": ["README.md"]},
    python_requires=">=3.10,<3.14",
    install_requires=[
        "numpy>=1.23",
        "torch>=2.7",
        # upstream fairseq does not import on Python 3.11 and later, its mended release does; see compat.py
        'fairseq==0.12.2; python_version < "3.11"',
        'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
    ],
    extras_require={
        "sentencepiece": ["sentencepiece"],
        "tensorboard": ["tensorboard"],
        "pmi": ["duckdb>=1.0", "zstandard"],
        "spark": ["pyspark>=3.5"],
        "variance": ["tqdm", "matplotlib"],
        "fisher": ["safetensors", "tqdm", "matplotlib"],
        "hf": ["transformers>=4.40", "tokenizers", "sentencepiece", "protobuf", "safetensors"],
        "test": [
            *("pytest", "pytest-xdist", "hypothesis", "scipy", "sentencepiece", "ruff>=0.17,<0.18", "regex"),
            *("markdown-it-py", "packaging", "build", "twine", "setuptools>=61,<81", "wheel"),
            *("duckdb>=1.0", "zstandard", "safetensors", "tqdm", "matplotlib"),
            "fairscale",  # --zero-sharding os
            # transformers 5 has its own trouble with torchaudio, see fairseq_maskplugins/hf/README.md
            *("transformers>=4.40,<5", "accelerate", "tokenizers", "protobuf"),
        ],
        "bench": ["transformers"],
    },
    entry_points={"console_scripts": ["maskplugins = fairseq_maskplugins.cli:main"]},
)
