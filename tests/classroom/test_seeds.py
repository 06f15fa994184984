"""Seeds differ by file and exercise, repeat, and tell nothing; the secret is its owner's alone."""

from pathlib import Path

import pytest

from jaxpar.classroom import seeds
from jaxpar.course.catalog import exercise

SECRET = b"0123456789abcdef"


def test_a_seed_repeats_and_differs_by_all_that_it_is_made_of() -> None:
    made = [
        seeds.seed(secret, exercise, file)
        for secret in (SECRET, SECRET[::-1])
        for exercise in ("scatter", "gather")
        for file in ("aa", "bb")
    ]
    assert len(set(made)) == len(made)
    assert made[0] == seeds.seed(SECRET, "scatter", "aa")
    assert all(0 <= seed < 1 << 64 for seed in made)
    # The words that it is made of do not run into each other.
    assert seeds.seed(SECRET, "ab", "c") != seeds.seed(SECRET, "a", "bc")


def test_the_name_of_a_seed_does_not_tell_it() -> None:
    name = seeds.seed_id(SECRET, "scatter", "aa")
    assert f"{seeds.seed(SECRET, 'scatter', 'aa'):016x}" != name
    assert len(name) == 16


def test_every_variant_is_chosen_by_some_course() -> None:
    secrets = [bytes([number]) * 16 for number in range(50)]
    assert {seeds._choice(secret, "broadcast", 3) for secret in secrets} == {0, 1, 2}
    row = exercise("mean_over_devices")
    chosen = [seeds.chosen_variants(secret, {row.id: row.where}) for secret in secrets]
    assert {variants[row.id] for variants in chosen} == {0, 1}


def test_a_new_secret_is_closed_to_others_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "course.secret"
    secret = seeds.read_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert seeds.read_secret(path) == secret
    assert len(secret) == 2 * seeds.SECRET_BYTES


def test_a_secret_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("short\n")
    path.chmod(0o600)
    with pytest.raises(ValueError, match="has 5 bytes; use 16 or more"):
        seeds.read_secret(path)
    path.chmod(0o644)
    with pytest.raises(ValueError, match=f"open to others; run chmod 600 {path}"):
        seeds.read_secret(path)
    with pytest.raises(ValueError, match="use --secret-file"):
        seeds.read_secret(tmp_path)


def test_where_a_secret_is_kept_if_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert seeds.default_secret_file() == Path("/somewhere/jaxpar/course.secret")
