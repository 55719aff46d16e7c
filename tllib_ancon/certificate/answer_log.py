"""The answers of a labelling session on disk."""

import json
import zlib
from contextlib import suppress
from pathlib import Path

from tllib_ancon.runs.files import write_bytes
from tllib_ancon.runtime.errors import UserError, named, reading
from tllib_ancon.runtime.types import Record

CHECKSUM = "crc32"


class AnswerLog:
    """The answers of a session on disk, one JSON object a line, after a ``header`` that says what they belong to. The
    last entry of a line, ``crc32``, is the checksum of the object without it. An incomplete last line was never
    acknowledged; it is left out."""

    def __init__(self, path: Path, header: Record):
        self.path = path
        self._lines = _complete_lines(path)
        entries = [self._entry(number, line) for number, line in enumerate(self._lines, start=1)]
        self.entries = entries[1:]
        if entries:
            recorded = entries[0]
            for name, value in header.items():
                if recorded.get(name) == value:
                    continue
                raise UserError(
                    f"{self.path} was begun with {named(name)} {recorded.get(name)}, not {value}: a session cannot "
                    "change once labels are known",
                    "give the same, or move the file away to start again",
                )
        else:
            self.append(header)

    def append(self, entry: Record) -> None:
        """Add an entry; it is on the disk when this returns, or the file is as before."""
        lines = [*self._lines, _line(entry)]
        write_bytes(self.path, b"".join(line + b"\n" for line in lines))
        self._lines = lines

    def _entry(self, number: int, line: bytes) -> Record:
        where = f"{self.path}, line {number},"
        with reading(where, "an answer", "restore it from a copy, or move it away to start again"):
            entry: Record = dict(json.loads(line.decode(errors="surrogateescape")))
            entry.pop(CHECKSUM, None)
            if _line(entry) != line:
                raise ValueError("its checksum is wrong")
        return entry


def _complete_lines(path: Path) -> list[bytes]:
    """The lines of a file; the last one counts without its line break, if it is a whole JSON object."""
    if not path.exists():
        return []
    *lines, last_line = path.read_bytes().split(b"\n")
    with suppress(ValueError):
        json.JSONDecoder().raw_decode(last_line.decode(errors="surrogateescape"))
        lines.append(last_line)
    return lines


def _line(entry: Record) -> bytes:
    """An entry with its checksum, as a line of the file."""
    content = json.dumps(entry, ensure_ascii=False).encode(errors="surrogateescape")
    with_checksum = {**entry, CHECKSUM: f"{zlib.crc32(content):08x}"}
    return json.dumps(with_checksum, ensure_ascii=False).encode(errors="surrogateescape")
