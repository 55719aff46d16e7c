"""A folder with two small domains and a source model, and the command line in this process."""

import contextlib
import io
import os
import shlex
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.support.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main

FILES = Path(__file__).parents[1] / "interfaces" / "refused"


@dataclass
class Said:
    """What a command printed, and its exit status."""

    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)
    status: int | str | None = None


def command(*words):
    """``tllib-ancon WORDS``"""
    said = Said()
    with contextlib.redirect_stdout(said.out), contextlib.redirect_stderr(said.err):
        try:
            said.status = main([str(word) for word in words])
        except SystemExit as stop:
            said.status = stop.code
    return said


@dataclass
class World:
    folder: Path

    @cached_property
    def domains(self):
        """``bright``, which is the source, and ``dark``."""
        root = self.folder / "domains"
        root.mkdir()
        return write_domains(root)

    @cached_property
    def images(self):
        """The words of every command on them."""
        return small_arguments(self.domains)

    @cached_property
    def source(self):
        """A run directory."""
        log = self.folder / "source"
        said = command("pretrain", *self.images, "--epochs", 6, "--log", log)
        assert said.status == 0, said.err.getvalue()
        return log

    def words(self, line):
        """The words of a command, of which some stand for what is here."""
        places = {"IMAGES": shlex.join(self.images), "DOMAINS": self.domains, "SOURCE": self.source, "FILES": FILES}
        for name, place in places.items():
            line = line.replace(name, str(place))
        return shlex.split(line)

    @contextlib.contextmanager
    def own_folder(self):
        """A new one, in which commands run in this context."""
        before = Path.cwd()
        own = Path(tempfile.mkdtemp(dir=self.folder))
        os.chdir(own)
        try:
            yield own
        finally:
            os.chdir(before)
