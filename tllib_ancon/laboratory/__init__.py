"""The laboratory: the paper's tables, the runs that reproduce them, reports of finished runs, and the demo.

Only commands import this room; it needs packages of its own.
"""
