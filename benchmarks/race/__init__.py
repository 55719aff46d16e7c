"""This package beside what a user would take instead, on the same work."""
