from tllib_ancon.errors import MOST_SHOWN, megabytes, unknown_name

MANY = [f"network_{number}" for number in range(MOST_SHOWN)]


def test_of_many_names_only_the_nearest_are_shown_and_of_a_few_all() -> None:
    few = "unknown criterion 'xyz'. Valid names: corr_c, snd"
    assert str(unknown_name("criterion", "xyz", ["snd", "corr_c", "snd"])) == few
    message = str(unknown_name("network", "mobilenet_v2", [*MANY, "mobilenetv2_100"]))
    assert "did you mean 'mobilenetv2_100'? Nearest of 61 valid names: mobilenetv2_100" in message
    assert message.count(",") < 6
    unlike = "unknown network 'xyz'. None of 61 valid names is like it"
    assert str(unknown_name("network", "xyz", [*MANY, "b"])) == unlike


def test_megabytes_are_rounded_up() -> None:
    counts = (0, 1, 100_000, 950_000, 1_000_001, 30_000_000, 27_670_116_110_564_327_424)
    shown = ("0.0 MB", "0.1 MB", "0.1 MB", "1.0 MB", "1.1 MB", "30 MB", "27,670,116,110,565 MB")
    assert tuple(map(megabytes, counts)) == shown
