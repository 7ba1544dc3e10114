"""What names a cluster in fsspec's storage options is used or refused, never ignored."""

import pytest

from fs3 import fsspec as module
from fs3.errors import InvalidArgument
from fs3.fsspec import Fs3FileSystem


@pytest.mark.parametrize(
    "options", [{"urll": "fs3://h:1"}, {"host": "h", "port": 1}, {"dir": "/d"}]
)
def test_unknown_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="knows no storage option") as caught:
        Fs3FileSystem(skip_instance_cache=True, **options)
    assert all(name in str(caught.value) for name in options)


@pytest.mark.parametrize("name", ["url", "cluster"])
def test_both_names_of_the_url_are_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, str | None]] = []
    monkeypatch.setattr(module, "_shared", lambda *where: asked.append(where))
    Fs3FileSystem(skip_instance_cache=True, **{name: "fs3://h:1"})
    assert asked == [("fs3://h:1", None)]
