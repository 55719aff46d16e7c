import pytest

from tests.certify.examples import comparison
from tllib_ancon.certificate.session import Session


@pytest.fixture
def session(tmp_path):
    return Session(comparison(), log=tmp_path / "answers.jsonl")
