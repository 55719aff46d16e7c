"""What a person sees of the package, recorded: every command and the Python contract, through the doors that they use.

A scene (:mod:`tests.interfaces.doors.scenes`) does something as a person would and tells what came of it, line by line.
``python -m tests.interfaces.doors.record`` writes what all of them tell to ``recorded/``, which the tests compare.
After a deliberate change the scenes are recorded anew, and the difference is read before it is committed.
"""
