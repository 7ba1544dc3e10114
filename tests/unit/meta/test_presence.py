"""When a client counts as gone."""

from meta_service.core.sessions import Presence


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


def test_gone_after_the_grace_and_not_before() -> None:
    presence = Presence(grace_s=5.0)
    assert presence.gone([1, 2], always, 100.0) == frozenset()
    assert presence.gone([1, 2], always, 104.9) == frozenset()
    assert presence.gone([1, 2], always, 105.0) == {1, 2}


def test_one_sign_of_life_starts_anew() -> None:
    presence = Presence(grace_s=5.0)
    presence.gone([1], always, 100.0)
    presence.gone([1], never, 104.0)
    assert presence.gone([1], always, 106.0) == frozenset()
    assert presence.gone([1], always, 111.0) == {1}


def test_a_client_without_sessions_is_forgotten() -> None:
    presence = Presence(grace_s=5.0)
    presence.gone([1], always, 100.0)
    presence.gone([], always, 103.0)
    assert presence.gone([1], always, 106.0) == frozenset()
