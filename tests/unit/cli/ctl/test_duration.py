import pytest

from ottla.cli.ctl.duration import parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("1.5s", 1_500),
        ("2w", 1_209_600_000),
        ("1m1ms", 60_001),
        ("0s", 0),
    ],
)
def test_a_duration_has_numbers_with_units(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-7d", "7d later", "7y", "1e3s", "7D", "٧d".replace("٧", "x")])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match="such as 7d or 1h30m"):
        parse_duration(text)
