"""What the JSON files of a run hold."""

import json


def read_json(path):
    return json.loads(path.read_text())


def read_json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
