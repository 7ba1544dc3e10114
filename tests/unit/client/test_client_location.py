"""Which cluster is meant, and when one may be started."""

from pathlib import Path

import pytest

from fs3.client import connect as module
from fs3.client.connect import _cluster_url
from fs3.client.path import relative, split_url
from fs3.config.client import SERVER_ENVIRONMENT, ClientConfig, Location
from fs3.config.cluster import CLUSTER_FILE
from fs3.errors import InvalidArgument, NotFound, Unavailable


def test_arguments_win_over_the_environment() -> None:
    environment = {"FS3_URL": "fs3://env:1", "FS3_DIR": "/env"}
    assert Location.from_environment("fs3://a:1", None, environment).url == "fs3://a:1"
    assert Location.from_environment(None, None, environment).url == "fs3://env:1"
    by_directory = Location.from_environment(None, "/mine", environment)
    assert (by_directory.url, by_directory.directory) == (None, Path("/mine"))
    from_variable = Location.from_environment(None, None, {"FS3_DIR": "/env"})
    assert (from_variable.url, from_variable.directory) == (None, Path("/env"))
    assert from_variable.configured


def test_nothing_configured() -> None:
    location = Location.from_environment(None, None, {"FS3_URL": ""})
    assert location == Location(
        url=None, directory=Path.home() / ".local/share/fs3", configured=False
    )


@pytest.mark.parametrize("variable", SERVER_ENVIRONMENT)
def test_under_a_scheduler_nothing_is_started(variable: str, tmp_path: Path) -> None:
    seen = Location.from_environment(None, None, {variable: "1"})
    assert seen.scheduler == variable
    location = Location(url=None, directory=tmp_path, configured=False, scheduler=variable)
    with pytest.raises(NotFound, match=f"{variable} is set.*FS3_URL=fs3://host:port"):
        _cluster_url(location, start=True)


def test_a_named_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    location = Location(url=None, directory=tmp_path, configured=True)
    with pytest.raises(Unavailable, match=f"fs3 up --dir {tmp_path}"):
        _cluster_url(location, start=True)
    unnamed = Location(url=None, directory=tmp_path, configured=False)
    with pytest.raises(Unavailable, match="fs3 up"):
        _cluster_url(unnamed, start=False)


def test_nothing_configured_starts_one_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def up(arguments: list[str]) -> None:
        started.append(arguments)
        (tmp_path / CLUSTER_FILE).write_text(
            '{"format":1,"url":"fs3://127.0.0.1:1","nodes":1,"replicas":1,"chains":1}'
        )

    monkeypatch.setattr(module, "_run_up", up)
    location = Location(url=None, directory=tmp_path, configured=False)
    with pytest.warns(UserWarning, match="a local one is started.*fs3 down"):
        assert _cluster_url(location, start=True) == "fs3://127.0.0.1:1"
    assert started == [["--dir", str(tmp_path), "--nodes", "1"]]
    with pytest.warns(UserWarning, match="a local one is started"):
        _cluster_url(location, start=True)
    assert started[1] == ["--dir", str(tmp_path)], "an existing cluster is started as it is"


@pytest.mark.parametrize("url", ["", "host:1", "fs3://host", "fs3://host:99999"])
def test_a_wrong_url(url: str, tmp_path: Path) -> None:
    location = Location(url=url, directory=tmp_path, configured=True)
    with pytest.raises(InvalidArgument):
        _cluster_url(location, start=True)


def test_settings_are_checked() -> None:
    import msgspec

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"retries": 3}, ClientConfig)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b", "a/b"),
        ("a/b", "a/b"),
        ("/", ""),
        ("fs3:/a", "a"),
        ("fs3://a/b", "a/b"),
        ("fs3:///a/", "a"),
        ("/a/", "a/"),
        (Path("/a/b"), "a/b"),
    ],
)
def test_paths(text: str, expected: str) -> None:
    assert relative(text) == expected


def test_urls_split() -> None:
    assert split_url("fs3://h:1/a/b/") == ("fs3://h:1", "/a/b")
    assert split_url("fs3://h:1") == ("fs3://h:1", "/")
    assert split_url("fs3://h/a") == (None, "/h/a")
