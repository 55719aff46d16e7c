"""Where the checkout is, and what lies in it and beside it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
"""Development data that lies beside a checkout and is never part of it."""
