"""What a person sees of the package, recorded: every command and the Python contract, through the doors that they use.

A scene (:mod:`tests.doors.scenes`) does something as a person would and tells what came of it, line by line.
``python -m tests.doors.record`` writes what all of them tell to ``recorded/``; the tests hold the package against it.
After a deliberate change the scenes are recorded anew, and the difference is read before it is committed.
"""
