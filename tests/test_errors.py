from tllib_ancon.errors import MOST_SHOWN, unknown_name

MANY = [f"network_{number}" for number in range(MOST_SHOWN)]


def test_of_many_names_only_the_nearest_are_shown_and_of_a_few_all() -> None:
    few = "unknown criterion 'xyz'. Valid names: corr_c, snd"
    assert str(unknown_name("criterion", "xyz", ["snd", "corr_c", "snd"])) == few
    message = str(unknown_name("network", "mobilenet_v2", [*MANY, "mobilenetv2_100"]))
    assert "did you mean 'mobilenetv2_100'? Nearest of 61 valid names: mobilenetv2_100" in message
    assert message.count(",") < 6
    unlike = "unknown network 'xyz'. None of 61 valid names is like it"
    assert str(unknown_name("network", "xyz", [*MANY, "b"])) == unlike
