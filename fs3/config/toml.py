"""Settings from a TOML file: one struct per service, unknown keys refused with the key's name."""

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from fs3.errors import InvalidArgument, NotFound

T = TypeVar("T", bound=msgspec.Struct)


def load(path: Path, kind: type[T]) -> T:
    """Reads `path` as a `kind`.

    Raises:
        NotFound: there is no such file.
        InvalidArgument: it is not TOML, or a key is unknown, missing or of the wrong type.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"configuration file {path} does not exist") from None
    try:
        return msgspec.convert(tomllib.loads(raw.decode()), kind)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InvalidArgument(f"{path}: {error}") from None


def dump(settings: msgspec.Struct) -> str:
    """The TOML text of `settings`, without fields that are None or as by default.

    Handles what settings are made of: text, numbers, booleans, lists of these and sections.
    """
    fields = msgspec.to_builtins(settings)
    defaults = {
        field.name: msgspec.to_builtins(field.default)
        for field in msgspec.structs.fields(settings)
        if field.default is not msgspec.NODEFAULT
    }
    plain, sections = [], []
    for name, value in fields.items():
        if value is None or (name in defaults and defaults[name] == value):
            continue
        if isinstance(value, dict):
            sections.append(f"\n[{name}]\n{dump(getattr(settings, name))}")
        else:
            plain.append(f"{name} = {_literal(value)}\n")
    return "".join(plain + sections)


def _literal(value: object) -> str:
    # A JSON string, number, boolean or list of these is a TOML one too.
    return msgspec.json.encode(value).decode()
