import pytest

from ottla.cli.ctl.duration import duration_text, parse_duration


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
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="such as 7d or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["7d", "1h30m", "250ms", "1d2h3m4s5ms", "0s", "14d"])
def test_a_duration_is_told_as_it_is_given(text):
    assert duration_text(parse_duration(text)) == text


def test_a_time_before_is_told_with_its_sign():
    assert duration_text(-1_500) == "-1s500ms"
    assert duration_text(0.2) == "0s"
