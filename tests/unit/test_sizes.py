import pytest

from shared.sizes import readable


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (3_600_000, "3.6 MB"),
        (14_200_000_000, "14.2 GB"),
        (10**17, "100000.0 TB"),
    ],
)
def test_size(size, shown):
    assert readable(size) == shown
