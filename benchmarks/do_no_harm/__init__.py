"""Does an adapted model end below its start, and does a label-free criterion notice? ``run.sh`` makes the runs,
``lists.py`` the targets that are not balanced, ``table.py`` the tables."""
