"""The answers of a session on disk: one JSON object a line, each on the disk before the next image is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tllib_ancon.errors import UserError
from tllib_ancon.training.files import sync_folder

Entry = dict[str, Any]


class AnswerLog:
    """An append-only file that begins with what the answers belong to.

    A line that was cut off by the end of its process was never acknowledged; it is removed when the file is opened.

    Args:
        path (Path): is made if it does not exist
        header: what the session is; that of an existing file must be the same

    Raises:
        UserError: the file cannot be read or written, is damaged, or belongs to another session
    """

    def __init__(self, path: Path, header: Entry):
        self.path = path
        lines = self._read()
        if lines:
            self._require_same(header, lines[0])
        else:
            self._append(header)
            sync_folder(path.parent)
        self.entries = lines[1:]

    def append(self, entry: Entry) -> None:
        """Add an entry; it is on the disk when this returns.

        Raises:
            UserError: it could not be written (why); the file is as before
        """
        self._append(entry)
        self.entries.append(entry)

    def _append(self, entry: Entry) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"
        try:
            with open(self.path, "ab") as file:
                end = file.tell()
                try:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    os.truncate(self.path, end)
                    raise
        except OSError as error:
            raise UserError(f"{self.path} could not be written ({error}); the answers before are kept") from error

    def _read(self) -> list[Entry]:
        try:
            content = self.path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):
                os.truncate(self.path, len(whole))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read ({error})") from error
        return [self._parsed(number, line) for number, line in enumerate(whole.splitlines(), start=1)]

    def _parsed(self, number: int, line: bytes) -> Entry:
        try:
            entry = json.loads(line.decode(errors="surrogateescape"))
        except ValueError as error:
            raise UserError(f"{self.path}, line {number}: damaged ({error})") from error
        if not isinstance(entry, dict):
            raise UserError(f"{self.path}, line {number}: not an answer")
        return entry

    def _require_same(self, header: Entry, found: Entry) -> None:
        different = [name for name in header if found.get(name) != header[name]]
        if "predictions" in different:
            raise UserError(f"{self.path} holds answers about other predictions; move it away to begin anew")
        if different:
            name = different[0]
            raise UserError(
                f"{self.path} was begun with `{name}` {found.get(name)}, not {header[name]}: its settings "
                "cannot change once labels are known; give the same, or move the file away to begin anew"
            )
