"""What is wrong with settings, in words: the place, the value, the rule and the cure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipeline.core.units import Unit

_TYPES = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list in brackets",
    "is_instance_of": "text in quotes",
    "path_type": "text in quotes",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}
_NOT_SHOWN = {"tokens"}
_DEEP = 3
"""A setting is in a table, and what is wrong in a list has a number."""
_TABLE = re.compile(r"\s*\[\s*([\w.-]+)\s*\]")
_ENTRY = re.compile(r"\s*\[\[\s*([\w.-]+)\s*\]\]")
_KEY = re.compile(r"\s*([\w.-]+)\s*=")


def unit_of(field: FieldInfo) -> Unit | None:
    """In what it is written, if it is a quantity."""
    return next((part for part in field.metadata if isinstance(part, Unit)), None)


def key_of(name: str, field: FieldInfo) -> str:
    """Its name in the file."""
    return str(field.validation_alias or name)


def as_toml_value(value: Any) -> str:
    """As it stands behind the sign in a file."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {as_toml_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml_value, value))}]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower()


def problems(model: type[BaseModel], error: ValidationError, tables: Mapping[str, Any], text: str) -> list[str]:
    """One line for each setting that cannot be used, in the order of the file."""
    by_key: dict[str, list[ErrorDetails]] = {}
    for one in error.errors():
        by_key.setdefault(".".join(_keys(model, one, tables)), []).append(one)
    lines = _lines(text)
    told = [(_line(lines, key), _told(model, key, found, tables)) for key, found in by_key.items()]
    told.sort(key=lambda one: one[0] or 0)
    return [message if line is None else f"line {line}: {message}" for line, message in told]


def _line(lines: Mapping[str, int], key: str) -> int | None:
    """Where it stands; what is missing of an entry of a list, where the entry does."""
    name, _, rest = key.partition(".")
    return lines.get(key, lines.get(f"{name}.{rest.split('.')[0]}") if rest[:1].isdigit() else None)


def _keys(model: type[BaseModel], error: ErrorDetails, tables: Mapping[str, Any]) -> list[str]:
    """The path to a setting; pydantic adds the kind of a table and the place in a list, which are no keys."""
    keys = [str(part) for part in error["loc"]]
    if keys[:1] == ["source"] and keys[1:2] == [_at(tables, ["source", "kind"])]:
        del keys[1]
    if error["type"] == "contradiction":
        keys.append(error["ctx"]["key"])
    if error["type"].startswith("union_tag"):
        keys.append("kind")
    return keys[:3] if keys[1:2] and keys[1].isdigit() else keys[:2]


def _told(model: type[BaseModel], key: str, found: Sequence[ErrorDetails], tables: Mapping[str, Any]) -> str:
    keys = key.split(".")
    kind, context = found[0]["type"], found[0].get("ctx", {})
    if len(found[0]["loc"]) > _DEEP and isinstance(found[0]["loc"][2], int):
        return _told_of_entry(key, found[0])
    if len(keys) > 1 and keys[1].isdigit():
        return _told_of_table(model, keys, found, tables)
    table = model if len(keys) == 1 else _table(model, keys[0], tables)
    if kind == "extra_forbidden":
        return _unknown(keys, table)
    field = _fields(table).get(keys[-1])
    if kind == "missing":
        return f'{key} is missing; write {keys[-1]} = "..." below [{keys[0]}]'
    if kind == "secret":
        return f"{key} {found[0]['msg']}"
    hidden = keys[-1] in _NOT_SHOWN or _is_list_of_tables(_at(tables, keys))
    value = key if hidden else f"{key} = {as_toml_value(_at(tables, keys))}"
    if kind.startswith("union_tag"):
        return f"{value} must be one of {context['expected_tags'].replace(chr(39), '')}; write one of them"
    if kind in ("contradiction", "rule"):
        return f"{value} {found[0]['msg']}"
    unit, usual = _written_default(field)
    if kind == "unit_missing" and unit is not None:
        return f"{value} needs a unit; write {_with_unit(_at(tables, keys), unit, usual)}"
    if kind == "unit_unknown" and unit is not None:
        whole = f", a whole number of {next(iter(unit.scales))}" if unit.whole else ""
        example = usual or _with_unit(1, unit, None)
        return f"{value} must be a number and a unit ({', '.join(unit.scales)}){whole}; write for example {example}"
    if len(keys) == 1:
        return f"{value} must be a table; write [{key}] and its settings below"
    rules = dict.fromkeys(_rule(one, unit) for one in found)
    return f"{value} must be {' or '.join(rules)}; {f'{usual} is usual' if usual else 'correct it'}"


def _told_of_table(
    model: type[BaseModel], keys: Sequence[str], found: Sequence[ErrorDetails], tables: Mapping[str, Any]
) -> str:
    """Of one of the tables [[...]] of the same name."""
    name, number, *key = keys
    entry, kind = f"{name} number {int(number) + 1}", found[0]["type"]
    value = as_toml_value(_at(tables, keys))
    if not key:
        return f"{entry} = {value} must be a table; write [[{name}]] and its settings below"
    if kind == "extra_forbidden":
        return _unknown([f"[{name}]", *key], get_args(model.model_fields[name].annotation)[0])
    if kind == "missing":
        return f'{entry} has no {key[0]}; write {key[0]} = "..." below its [[{name}]]'
    if kind == "rule":
        return f"{entry}: {key[0]} = {value} {found[0]['msg']}"
    rules = dict.fromkeys(_rule(one, None) for one in found)
    return f"{entry}: {key[0]} = {value} must be {' or '.join(rules)}; correct it"


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, Mapping) for one in value)


def _told_of_entry(key: str, error: ErrorDetails) -> str:
    """Of a table in a list, such as a token; its value may be a secret."""
    number, name = error["loc"][2:4]
    entry = f"{key} number {int(number) + 1}"
    if error["type"] == "missing":
        return f"{entry} has no {name}; gemmed token shows a whole line"
    if error["type"] == "extra_forbidden":
        return f"{entry} has {name}, which is not known; gemmed token shows a whole line"
    rule = error["msg"].removeprefix("must be ") if error["type"] == "rule" else _rule(error, None)
    return f"{entry} has a {name} that must be {rule}; gemmed token shows a whole line"


def _rule(error: ErrorDetails, unit: Unit | None) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if isinstance(error["loc"][-1], int):
        return f"a list of {'whole numbers' if kind.startswith('int') else 'texts in quotes'}"
    if kind in _LIMITS:
        name, words = _LIMITS[kind]
        return f"{words} {unit.written(context[name]) if unit else context[name]}"
    if kind == "literal_error":
        return f"one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}"
    if kind == "finite_number":
        return "finite"
    if kind == "string_too_short":
        return "text that is not empty"
    return _TYPES.get(kind, error["msg"])


def _unknown(keys: Sequence[str], table: type[BaseModel]) -> str:
    known = list(_fields(table))
    meant = get_close_matches(keys[-1], known, n=1, cutoff=0.5)
    cure = f"did you mean {meant[0]}?" if meant else f"known are {', '.join(known)}"
    if len(keys) == 1:
        return f"{keys[0]} is not known; {cure}"
    return f"{keys[-1]} in [{keys[0]}] is not known; {cure}"


def _table(model: type[BaseModel], name: str, tables: Mapping[str, Any]) -> type[BaseModel]:
    """The model of a table; where several are possible, that of its kind."""
    annotation: Any = model.model_fields[name].annotation
    kinds = {option.model_fields["kind"].default: option for option in get_args(annotation)}
    chosen: type[BaseModel] = kinds.get(_at(tables, [name, "kind"]), annotation)
    return chosen


def _fields(table: type[BaseModel]) -> dict[str, FieldInfo]:
    fields = getattr(table, "model_fields", {})
    return {key_of(name, field): field for name, field in fields.items()}


def _written_default(field: FieldInfo | None) -> tuple[Unit | None, str | None]:
    """In what a setting is written, and its default in that form."""
    if field is None:
        return None, None
    unit, default = unit_of(field), field.default
    if field.is_required() or default is None or default == () or isinstance(default, BaseModel):
        return unit, None
    return unit, as_toml_value(unit.written(default) if unit else default)


def _with_unit(number: float, unit: Unit, usual: str | None) -> str:
    """In the unit of the default, unless the number is so large that the first unit was meant."""
    first = next(iter(unit.scales))
    name = usual.strip('"').split()[-1] if usual else first
    return f'"{number} {name if number < float(unit.scales[name]) else first}"'


def _at(tables: Mapping[str, Any], keys: Sequence[str]) -> Any:
    value: Any = tables
    for key in keys:
        if isinstance(value, list) and key.isdigit():
            value = value[int(key)]
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _lines(text: str) -> dict[str, int]:
    """In which line a setting stands; text over several lines may hide one, which is then told without a line."""
    found: dict[str, int] = {}
    table, entries = "", Counter[str]()
    for number, line in enumerate(text.split("\n"), start=1):
        if entry := _ENTRY.match(line):
            table = f"{entry[1]}.{entries[entry[1]]}."
            entries[entry[1]] += 1
            found.setdefault(entry[1], number)
            found[table[:-1]] = number
        elif header := _TABLE.match(line):
            table = f"{header[1]}."
            found.setdefault(header[1], number)
        elif key := _KEY.match(line):
            found.setdefault(table + key[1], number)
    return found
