"""Reads vLLM's sources, without importing them: `EngineArgs`, and what its fields mean."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile, is_zipfile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODULES = (
    "vllm/engine/arg_utils.py",
    "vllm/config/",
    "vllm/model_executor/layers/quantization/__init__.py",
    "vllm/model_executor/model_loader/__init__.py",
    "vllm/v1/attention/backends/registry.py",
)
# For fields whose default says nothing: the classes where they get their value.
_LATER = ("CacheConfig", "SchedulerConfig", "ParallelConfig", "LoRAConfig")
_BOUNDS = {"ge": "minimum", "gt": "above", "le": "maximum", "lt": "below"}
_SCALARS = ("bool", "int", "float", "str")

Spec = dict[str, Any]
"""`type` (bool, int, float, str, list, object), and, if known, `choices`, `minimum`, `above`,
`maximum`, `below`, `null` and the `members` of an object."""


@dataclass(frozen=True)
class Field:
    """A field of a class: its annotation, and its default."""

    annotation: ast.expr
    default: ast.expr | None


@dataclass(frozen=True)
class Sources:
    """The modules that matter, from an unpacked wheel or the wheel itself."""

    version: str
    texts: tuple[str, ...] = field(repr=False)

    @classmethod
    def read(cls, place: Path) -> Sources:
        """Read them from the wheel at `place`, or from a folder in which one was unpacked."""
        if is_zipfile(place):
            with ZipFile(place) as wheel:
                names = [name for name in wheel.namelist() if _matters(name)]
                (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
                return cls(
                    _version(wheel.read(metadata)),
                    tuple(wheel.read(name).decode() for name in sorted(names)),
                )
        found = list(place.glob("vllm*.dist-info/METADATA"))
        if len(found) != 1:
            raise SystemExit(f"{place} is neither a wheel of vLLM nor a folder in which one was unpacked.")
        (metadata_file,) = found
        files = sorted(path for path in place.glob("vllm/**/*.py") if _matters(str(path.relative_to(place))))
        return cls(_version(metadata_file.read_bytes()), tuple(path.read_text() for path in files))

    def fields(self, name: str) -> dict[str, Field]:
        """The fields of a class, by name, without those that are not arguments of its constructor."""
        return {
            node.target.id: Field(node.annotation, node.value)
            for node in self._classes[name].body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and not node.target.id.startswith("_")
        }

    def spec(self, name: str, one: Field) -> Spec:
        """What values the field `name` of `EngineArgs` may have."""
        origin = self._origin(name, one.default)
        spec = self._of_annotation(one.annotation)
        if origin is not None and spec["type"] == "str" and "choices" not in spec:
            spec |= {k: v for k, v in self._of_annotation(origin.annotation).items() if k == "choices"}
        return spec | _from_default((origin or one).default)

    def default(self, name: str, one: Field) -> str:
        """The default of the field `name` of `EngineArgs`, as Python writes it."""
        default = one.default
        if isinstance(default, ast.Attribute | ast.Call):  # it is that of a config class
            default = (self._origin(name, default) or one).default
        if isinstance(default, ast.Call):
            keywords = {keyword.arg: keyword.value for keyword in default.keywords}
            default = keywords.get("default") or keywords.get("default_factory") or default
        return "none" if default is None else ast.unparse(default)

    def class_of(self, annotation: ast.expr) -> str | None:
        """The class of this module that an annotation names."""
        return next((name for name in _names(annotation) if name in self._classes and name[0] != "_"), None)

    @cached_property
    def _trees(self) -> list[ast.Module]:
        return [ast.parse(text) for text in self.texts]

    @cached_property
    def _classes(self) -> dict[str, ast.ClassDef]:
        return {n.name: n for tree in self._trees for n in tree.body if isinstance(n, ast.ClassDef)}

    @cached_property
    def _aliases(self) -> dict[str, ast.expr]:
        """`Name = Literal[...]`, with or without an annotation."""
        found: dict[str, ast.expr] = {}
        for node in (node for tree in self._trees for node in tree.body):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value):
                    found[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Subscript() as value):
                    found[name] = value
        return found

    def _origin(self, name: str, default: ast.expr | None) -> Field | None:
        """The field of a config class that `default` reads, or one of the same name."""
        match default:
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if owner in self._classes:
                return self.fields(owner).get(attribute)
            case ast.Call(
                func=ast.Name(id="get_field"), args=[ast.Name(id=owner), ast.Constant(value=attribute)]
            ):
                return self.fields(owner).get(str(attribute))
        later = (self.fields(owner).get(name) for owner in _LATER if owner in self._classes)
        return next((one for one in later if one is not None), None)

    def _of_annotation(self, annotation: ast.expr) -> Spec:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        parts = list(_alternatives(annotation))
        spec: Spec = {}
        if any(isinstance(part, ast.Constant) and part.value is None for part in parts):
            spec["null"] = True
        choices = [choice for part in parts for choice in self._choices(part)]
        if choices:
            kinds = {type(choice).__name__ for choice in choices}
            kind = kinds.pop() if len(kinds) == 1 else "str"
            spec |= {"type": kind, "choices": sorted(set(choices), key=None if kind == "int" else str)}
            return spec
        names = [name for part in parts for name in list(_names(part))[:1]]
        if any(name in ("list", "set", "tuple") for name in names):
            return spec | {"type": "list"}
        scalars = [name for name in names if name in _SCALARS]
        if scalars and not any(name in ("dict", *self._classes) for name in names):
            return spec | {"type": scalars[0] if len(scalars) == 1 else "str"}
        return spec | {"type": "object"}

    def _choices(self, part: ast.expr) -> list[Any]:
        match part:
            case ast.Name(id=name) if name in self._aliases:
                return self._choices(self._aliases[name])
            case ast.Name(id=name) if name in self._classes and _is_enum(self._classes[name]):
                return _members(self._classes[name])
            case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
                elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return [
                    choice
                    for element in elements
                    for choice in (
                        [element.value] if isinstance(element, ast.Constant) else self._choices(element)
                    )
                ]
        return []


def _matters(name: str) -> bool:
    return name.endswith(".py") and name.startswith(_MODULES) and name.count("/") <= 5


def _version(metadata: bytes) -> str:
    return next(line[9:] for line in metadata.decode().splitlines() if line.startswith("Version: "))


def _alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    if isinstance(annotation, ast.BinOp):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    else:
        yield annotation


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _is_enum(one: ast.ClassDef) -> bool:
    return any(name.endswith("Enum") for base in one.bases for name in _names(base))


def _members(enum: ast.ClassDef) -> list[Any]:
    """The members of an enumeration: numbers as numbers, everything else by name."""
    numbers = any(name == "IntEnum" for base in enum.bases for name in _names(base))
    return [
        node.value.value if numbers and isinstance(node.value, ast.Constant) else target.id
        for node in enum.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    ]


def _from_default(default: ast.expr | None) -> Spec:
    """What `None`, or `Field(default=None, ge=1)`, says."""
    keywords = default.keywords if isinstance(default, ast.Call) else []
    found: Spec = {}
    for keyword in keywords:
        if keyword.arg in _BOUNDS and isinstance(keyword.value, ast.Constant):
            found[_BOUNDS[keyword.arg]] = keyword.value.value
    told = [default, *(keyword.value for keyword in keywords if keyword.arg == "default")]
    if any(isinstance(one, ast.Constant) and one.value is None for one in told):
        found["null"] = True
    return found
