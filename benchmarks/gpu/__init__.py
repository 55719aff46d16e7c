"""What only a GPU can show: ``run.sh`` makes the runs in short calls, ``summary.py`` a page of them."""
