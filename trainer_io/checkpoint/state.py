"""Nested state to named tensors and a JSON skeleton, and back.

Training state is dictionaries in dictionaries, with tensors, numbers and texts as leaves, and not
all keys are strings (optimizers count parameters). Tensors get the path of their keys as a name, so
that any safetensors reader finds `model/embedding.weight`; the skeleton keeps what a name cannot.
"""

from typing import Any

import torch

_SCALARS = (bool, int, float, str, type(None))


def flatten(state: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """(tensors by name, skeleton).

    Raises:
        TypeError: a leaf is neither a tensor nor a plain value, or a key neither text nor number.
        ValueError: two tensors would have the same name.
    """
    tensors: dict[str, torch.Tensor] = {}
    return tensors, _skeleton(state, "", tensors)


def unflatten(skeleton: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The state that `flatten` took apart."""
    (kind, content), *_ = skeleton.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "value":
            return content
        case "dict":
            return {key: unflatten(child, tensors) for key, child in content}
        case "list":
            return [unflatten(child, tensors) for child in content]
        case "tuple":
            return tuple(unflatten(child, tensors) for child in content)
    raise ValueError(f"unknown part {kind!r} in the checkpoint's structure (newer version?)")


def _skeleton(state: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    match state:
        case torch.Tensor():
            if name in tensors:
                raise ValueError(f"two tensors have the name {name!r}: rename a key")
            tensors[name] = state
            return {"tensor": name}
        case dict():
            return {"dict": [_item(key, child, name, tensors) for key, child in state.items()]}
        case list() | tuple():
            children = [_skeleton(s, _below(name, i), tensors) for i, s in enumerate(state)]
            return {"list" if isinstance(state, list) else "tuple": children}
        case _ if isinstance(state, _SCALARS):
            return {"value": state}
    raise TypeError(f"{name}: a checkpoint holds tensors and plain values, not {type(state)!r}")


def _item(key: Any, child: Any, name: str, tensors: dict[str, torch.Tensor]) -> list[Any]:
    if not isinstance(key, str | int):
        raise TypeError(f"{name}: keys are text or whole numbers, not {key!r}")
    return [key, _skeleton(child, _below(name, key), tensors)]


def _below(name: str, key: str | int) -> str:
    return f"{name}/{key}" if name else str(key)
