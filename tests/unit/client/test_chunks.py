from triptych_client.chunks import chunks, text_bytes


def cut(texts: list[str], most_texts: int, most_bytes: int) -> list[list[str]]:
    return [texts[part] for part in chunks([text_bytes(text) for text in texts], most_texts, most_bytes)]


def test_at_most_so_many_texts() -> None:
    assert cut(["a", "b", "c"], 2, 100) == [["a", "b"], ["c"]]
    assert cut(["a", "b"], 2, 100) == [["a", "b"]]
    assert cut([], 2, 100) == []


def test_at_most_so_many_bytes_of_utf8() -> None:
    assert cut(["aa", "aa", "a"], 10, 4) == [["aa", "aa"], ["a"]]
    assert cut(["éé", "a"], 10, 4) == [["éé"], ["a"]]


def test_a_long_text_goes_alone() -> None:
    assert cut(["a", "long text", "b"], 10, 4) == [["a"], ["long text"], ["b"]]
