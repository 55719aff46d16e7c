"""The paper's tables: the numbers it prints and the runs that reproduce them."""
