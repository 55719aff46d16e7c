"""The figures of the tables' page are drawn from its lists of runs."""

from benchmarks.tables.figures import FIGURES, HERE


def test_every_figure_of_the_tables_is_drawn_from_the_lists_and_is_on_its_page():
    page = (HERE / "README.md").read_text()
    for name, draw in FIGURES.items():
        assert f"]({name}.png)" in page
        assert (HERE / f"{name}.png").is_file()
        assert draw().get_suptitle()
