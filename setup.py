"""On the package's page the README's links and pictures lead to the repository, at the tag of this version.

Without an entry ``Repository`` in ``pyproject.toml`` they stay as they are.
"""

import re
from pathlib import Path
from runpy import run_path

from setuptools import setup

HERE = Path(__file__).parent
repository = re.search(r'^Repository = "(.*)"', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
tag = "v" + run_path(str(HERE / "tllib_ancon" / "_version.py"))["__version__"]
readme = (HERE / "README.md").read_text(encoding="utf-8")
if repository is not None:
    readme = re.sub(r'(!\[[^]]*]\(|src=")(?!https?:)', rf"\g<1>{repository[1]}/raw/{tag}/", readme)
    readme = re.sub(r'(]\(|href=")(?!https?:|#)', rf"\g<1>{repository[1]}/blob/{tag}/", readme)
setup(long_description=readme, long_description_content_type="text/markdown")
