"""The page of a report loads nothing from elsewhere."""

import re

from tests.laboratory.fabricated import frame_of, write_run
from tllib_ancon.laboratory.figures import figures
from tllib_ancon.laboratory.formats import rendered
from tllib_ancon.laboratory.tables import ACCURACY, table


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    write_run(tmp_path, "ancon")
    runs = frame_of(tmp_path)
    pictures, _ = figures(runs, [])
    page = rendered("page.html", title="", remarks=[], tables=[table(ACCURACY, runs)], pictures=pictures)
    assert set(re.findall(r"""(?:src|href)\s*=\s*["']?(.{22})""", page)) == {"data:image/png;base64,"}
    assert "url(" not in page
    assert "@import" not in page
