"""Words as the board compares them: folded, without function words, lightly stemmed.

Small on purpose: it sorts conversations, it does not search. The search index has its own, larger one.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:['’-][^\W_{_CJK}]+)*")
_HAN = re.compile(rf"[{_CJK}]")
_LONGEST: Final = 48
MAX_CHARS: Final = 8_000

_FUNCTION = """
a about after again all also am an and any are as at be because been before being between both but by can
cannot could did do does doing done down during each few for from further get gets getting got had has have
having he her here hers herself him himself his how i if in into is it its itself just let like me might more
most much must my myself no nor not now of off on once only or other our ours ourselves out over own same
shall she should so some such than that the their theirs them themselves then there these they this those
through to too under until up upon us very was we were what when where which while who whom whose why will
with would yet you your yours yourself yourselves aber alle als also am an auch auf aus bei bin bis da damit
dann das dass dein dem den denn der des dich die dies diese dieser dieses dir doch dort du durch ein eine
einem einen einer eines er es etwas für gegen haben hat hatte hier ich ihm ihn ihr ihre im in ins ist ja jede
jetzt kann kein keine können man mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne sehr sein
seine sich sie sind so soll über um und uns unser unter vom von vor war waren was weil wenn wer werden wie
wieder wir wird wo zu zum zur
"""
_FILLER = """
absolutely actually add ago always amazing another anything appreciate ask awesome away awful back bad believe
best better big bit bring call came can't care change check chance come cool could course crazy day days deal
definitely different doesn't don't drop each easy else end enough enjoy even ever every everyone everything
exactly excited experience extra far feel feels felt find fine first forward found fun gave give glad go goes
going gonna gone good gotta great guess guy guys happen happy hard having haven't hear heard hello help helped
hey hi hope i'd i'll i'm i've idea important incredible interesting isn't it's kind keep kept know last lately
later least leave left let's life little live long look looking lot lots love lovely luck made main make makes
making many matter maybe mean meet mind moment morning move need needed never new next nice night nothing oh
ok okay old one part past people perfect person pick place plan please point possible pretty problem proud put
quick quite ready real really reason recently remember right run said saw say second see seem seems seen send
sense set share should show side small something sometimes soon sorry sound sounds special spend start started
stay still stop stuff such super sure take taking talk tell thank thanks that's there's they're thing things
think thought time times today together told tomorrow tonight took totally tried true try trying turn two
under understand use used useful usually wait want wanted wasn't way ways we're week weekend weeks welcome
well went what's while whole will wish within won't wonderful wondering word work worked working works world
worth wow wrong yeah year years yep yes yesterday you're you've bitte danke gut hallo heute ja klar mal morgen
nein gern genau gestern machen mehr neu schon super viel vielleicht wirklich zeit
"""


@lru_cache(maxsize=8_192)
def terms(text: str) -> tuple[str, ...]:
    """The words of a text that carry meaning, in order and with repeats; long texts count by their head.

    The texts around an exchange are the same for the next one, so they are kept for a while.
    """
    return tuple([form for _, form in _read(text)])


def surfaces(text: str) -> dict[str, str]:
    """For each term of a text the word that it stands for, as it is written there first."""
    found: dict[str, str] = {}
    for word, form in _read(text):
        found.setdefault(form, word)
    return found


@lru_cache(maxsize=512)
def _read(text: str) -> tuple[tuple[str, str], ...]:
    """Each word with the terms that it stands for; kept for who asks for one and then for the other."""
    folded = unicodedata.normalize("NFKC", text[:MAX_CHARS]).casefold().replace("’", "'")
    return tuple([(word, form) for word in _WORD.findall(folded) for form in _forms(word)])


def is_filler(term: str) -> bool:
    """A word of small talk: it says little about what a conversation is about."""
    return term in FILLER


@lru_cache(maxsize=20_000)
def _forms(word: str) -> list[str]:
    if _HAN.match(word):
        return _pairs(word)
    if word in FUNCTION or len(word) > _LONGEST:
        return []
    if word in _FILLER_WORDS:
        return [stem(word)]
    parts = word.split("-") if "-" in word else [word]
    return [stem(part) for part in parts if len(part) > 1 and part not in FUNCTION]


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """One form for the commonest endings of English; what it makes need not be a word."""
    word = word.removesuffix("'s")
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word.removesuffix("e") if len(word) > 4 else word


FUNCTION: Final = frozenset(_FUNCTION.split())
_FILLER_WORDS: Final = frozenset(_FILLER.split())
FILLER: Final = frozenset(stem(word) for word in _FILLER_WORDS)
