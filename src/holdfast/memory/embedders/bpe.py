"""The byte-pair tokenizer of SentencePiece vocabularies, enough for weights that come with one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

from holdfast.errors import InvalidInput

_SPACE = "▁"
_LONGEST_WORD = 128
_NEVER = 1 << 60


class BytePairs:
    """Pairs are joined in the order of the vocabulary; letters it lacks become their bytes."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self.vocabulary = dict(vocabulary)
        self._bytes = [self.vocabulary.get(f"<0x{byte:02X}>", 0) for byte in range(256)]
        self._word = lru_cache(maxsize=1 << 17)(self._split_word)
        self._piece = lru_cache(maxsize=1 << 10)(lambda piece: self._joined(list(piece)))

    @classmethod
    def from_file(cls, path: Path) -> BytePairs:
        """Read the vocabulary out of a `tokenizer.json`."""
        try:
            return cls(json.loads(path.read_bytes())["model"]["vocab"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"cannot read the tokenizer: {path}", hint="Install or copy the model again."
            ) from error

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without any marks around them."""
        if not text:
            return []
        words = text.split(" ")
        if len(max(words, key=len)) > _LONGEST_WORD:
            return [number for word in words for number in self._long_word(word)]
        return list(chain.from_iterable(map(self._word, words)))

    def _long_word(self, word: str) -> Iterator[int]:
        """A word of any length, cut so that neither the joining nor what is kept of it grows with it."""
        yield from self._word(word[:_LONGEST_WORD])
        for at in range(_LONGEST_WORD, len(word), _LONGEST_WORD):
            yield from self._piece(word[at : at + _LONGEST_WORD])

    def _split_word(self, word: str) -> tuple[int, ...]:
        return self._joined([_SPACE, *word])

    def _joined(self, parts: list[str]) -> tuple[int, ...]:
        """The pair that comes first in the vocabulary is joined, again and again; only neighbours change."""
        order = [self.vocabulary.get(a + b, _NEVER) for a, b in pairwise(parts)]
        while order and (first := min(order)) != _NEVER:
            at = order.index(first)
            parts[at] += parts.pop(at + 1)
            del order[at]
            if at < len(order):
                order[at] = self.vocabulary.get(parts[at] + parts[at + 1], _NEVER)
            if at:
                order[at - 1] = self.vocabulary.get(parts[at - 1] + parts[at], _NEVER)
        return tuple(number for part in parts for number in self._known(part))

    def _known(self, part: str) -> list[int]:
        number = self.vocabulary.get(part)
        return (
            [number] if number is not None else [self._bytes[byte] for byte in part.encode(errors="replace")]
        )
