"""Quantities as people write them: a number and a unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_WRITTEN = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True)
class Unit:
    """One kind of quantity and the units it may be written in.

    In the annotation of a setting it stands for: written in a file, the value is text such as "30 s"; given by
    Python, it is a plain number of the first unit.
    """

    scales: Mapping[str, str]
    whole: bool

    def written(self, value: float) -> str:
        """In the largest unit that makes it a whole number, otherwise in the first."""
        exact = Decimal(repr(value))
        fitting = [(Decimal(scale), unit) for unit, scale in self.scales.items() if _divides(Decimal(scale), exact)]
        scale, unit = max(fitting) if exact and fitting else (Decimal(1), next(iter(self.scales)))
        return f"{(exact / scale).normalize():f} {unit}"

    def read(self, text: str) -> float:
        """The number in the first unit; ValueError where the text has another form."""
        found = _WRITTEN.fullmatch(text)
        if not found or found[2] not in self.scales:
            raise ValueError(text)
        exact = Decimal(found[1]) * Decimal(self.scales[found[2]])
        if self.whole and exact != exact.to_integral_value():
            raise ValueError(text)
        return int(exact) if self.whole else float(exact)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_before_validator_function(self._checked, handler(source))

    def _checked(self, value: Any, info: ValidationInfo) -> Any:
        if info.context is None or value is None:
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise PydanticCustomError("unit_missing", "a number without a unit")
        try:
            return self.read(str(value))
        except ValueError as error:
            raise PydanticCustomError("unit_unknown", "not a number and a unit") from error


def _divides(scale: Decimal, exact: Decimal) -> bool:
    quotient = exact / scale
    return quotient == quotient.to_integral_value() and quotient * scale == exact


DURATION = Unit({"s": "1", "ms": "0.001", "min": "60", "h": "3600", "d": "86400"}, whole=False)
SIZE = Unit(
    {
        "B": "1",
        "kB": "1e3",
        "MB": "1e6",
        "GB": "1e9",
        "TB": "1e12",
        "KiB": str(2**10),
        "MiB": str(2**20),
        "GiB": str(2**30),
        "TiB": str(2**40),
    },
    whole=True,
)
RATE = Unit({"Hz": "1", "kHz": "1e3"}, whole=True)
