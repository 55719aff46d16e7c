"""How often the intervals of ``tllib-ancon assess`` hold, and what its advice does, on families that were left out."""
