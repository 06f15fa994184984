"""Sentences of variants."""

SENTENCES: dict[str, str] = {
    "another_variant": "This is right for the exercise as it is in the public course; your stub "
    "asks for a variant of it, which its docstring describes.",
}
