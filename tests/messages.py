"""The text of every UserError in the package, as far as its code shows it."""

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VALUE = "…"
"""Stands for a value that is put in."""


@dataclass(frozen=True)
class Message:
    """What an error says; ``parameters`` are the arguments of the functions around it."""

    place: str
    text: str
    parameters: frozenset[str]


def messages():
    found = []
    for path in sorted((ROOT / "tllib_ancon").rglob("*.py")):
        found += messages_of(path)
    return found


def messages_of(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    constants = {key: value for key, value in vars(importlib.import_module(name)).items() if isinstance(value, str)}
    for call, functions in calls(ast.parse(path.read_text(encoding="utf-8")), []):
        texts = dict(constants)
        for function in functions:
            texts |= assigned(function, texts)
        parameters = {argument.arg for function in functions for argument in arguments_of(function)}
        text = " ".join(text_of(call.args[0], texts).split())
        if len(re.findall("[A-Za-z]{2,}", text)) > 2:
            yield Message(f"{path.relative_to(ROOT)}:{call.lineno}", text, frozenset(parameters))


Function = ast.FunctionDef | ast.AsyncFunctionDef


def calls(node, functions):
    """Each UserError that is made below a node, and the functions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and getattr(child.func, "id", "") == "UserError" and child.args:
            yield child, functions
        yield from calls(child, [*functions, child] if isinstance(child, Function) else functions)


def arguments_of(function):
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def assigned(function, texts):
    """The texts that the variables of a function may hold: all of them, one after the other."""
    arguments = arguments_of(function)[::-1]
    defaults = [*zip(arguments, function.args.defaults[::-1], strict=False)]
    found = {argument.arg: text_of(default, texts).replace(VALUE, "") for argument, default in defaults}
    for node in ast.walk(function):
        if isinstance(node, ast.For):
            names = [name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)]
            words = [part.value for part in ast.walk(node.iter) if isinstance(part, ast.Constant)]
            found |= {name: " ".join(word for word in words if isinstance(word, str)) for name in names}
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = [node.value]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                values = node.value.elts
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name) and (text := text_of(value, texts).replace(VALUE, "")).strip():
                    found[name.id] = f"{found.get(name.id, '')} {text}"
    return found


def text_of(node, texts):
    """The text that an expression holds, of both sides where it has a choice."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, texts) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, texts)
    if isinstance(node, ast.Name):
        return texts.get(node.id, VALUE)
    if isinstance(node, ast.BinOp):
        return text_of(node.left, texts) + text_of(node.right, texts)
    if isinstance(node, ast.IfExp):
        return f"{text_of(node.body, texts)} {text_of(node.orelse, texts)}"
    if isinstance(node, ast.BoolOp):
        return " ".join(text_of(value, texts) for value in node.values)
    return VALUE


def settings_in(text):
    """The settings that a message names between backticks, each with its value, if any."""
    return re.findall(r"`([a-z][a-z0-9_]*)(?:=([^`]*))?`", text)


def flags_in(text):
    return re.findall(r"(?<![\w-])--[a-z][\w-]*", text)
