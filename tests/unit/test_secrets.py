import pytest

from shared.secrets import names_secret, public_address, public_text


@pytest.mark.parametrize(
    "key",
    [
        "hf_token",
        "HF_TOKEN",
        "token",
        "api-token",
        "super_token",
        "password",
        "client_secret",
        "api_key",
        "Authorization",
    ],
)
def test_names_of_secrets(key):
    assert names_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "max_tokens",
        "tokenizer",
        "input_token_count",
        "token_ids",
        "time_to_first_token",
        "per_token",
        "seconds_per_token",
        "model",
        "",
    ],
)
def test_names_of_other_values(key):
    assert not names_secret(key)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("https://user:pw@host:8080/a/b.tar?X-Signature=1#x", "https://host:8080/a/b.tar"),
        ("HTTP://u@[::1]/b.tar?s", "http://[::1]/b.tar"),
        ("https://host/b.tar", "https://host/b.tar"),
        ("org/model", "org/model"),
        ("/a/b?c#d", "/a/b?c#d"),
        ("http://host:abc", "http://host:abc"),
        ("http://host:abc/a?X-Signature=1#x", "http://host:abc/a"),
        ("http://user:pass/word@host", "http://..."),
        ("http://[host/a", "http://[host/a"),
    ],
)
def test_addresses_lose_their_secrets(address, public):
    assert public_address(address) == public


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("https://user:pw@host/v1", "https://host/v1"),
        ("--metrics=http://user:pw@host:9000/metrics?key=1", "--metrics=http://host:9000/metrics"),
        ("--metrics-url", "--metrics-url"),
        ("compare http://u:p@a and http://b", "compare http://a and http://b"),
    ],
)
def test_texts_lose_the_secrets_of_their_addresses(text, public):
    assert public_text(text) == public
