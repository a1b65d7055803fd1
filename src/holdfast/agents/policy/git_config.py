"""Whether the settings of a git repository can make git run anything; pure.

Known are those that only describe. Any other setting, and any line that is not as plain as git writes it
itself, may name a program: there are too many that do, and new ones come with every version.
"""

from __future__ import annotations

import re
from typing import Final

_SECTION: Final = re.compile(r'\[\s*([A-Za-z0-9-]+)(?:\s+"([^"\\]*)")?\s*\]')
_SETTING: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)(?:\s*=\s*([^\\]*))?")
_FALSE: Final = frozenset(("false", "no", "off", "0", ""))

_HARMLESS: Final = frozenset(
    f"{section}.{name}"
    for section, names in {
        "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode "
        "symlinks autocrlf eol safecrlf quotepath abbrev compression sharedrepository untrackedcache "
        "preloadindex protecthfs longpaths protectntfs checkstat trustctime whitespace splitindex "
        "sparsecheckout sparsecheckoutcone",
        "remote": "url pushurl fetch push mirror tagopt prune skipdefaultupdate promisor partialclonefilter",
        "branch": "remote merge rebase description pushremote vscode-merge-base gh-merge-base",
        "user": "name email signingkey useconfigonly",
        "author": "name email",
        "committer": "name email",
        "submodule": "url active branch ignore recurse fetchrecursesubmodules",
        "extensions": "worktreeconfig objectformat partialclone refstorage",
        "pull": "rebase ff",
        "push": "default autosetupremote followtags",
        "fetch": "prune prunetags parallel",
        "merge": "ff conflictstyle renames",
        "rebase": "autostash autosquash updaterefs",
        "diff": "algorithm renames colormoved mnemonicprefix",
        "status": "short branch showuntrackedfiles submodulesummary",
        "log": "date decorate abbrevcommit follow",
        "init": "defaultbranch",
        "commit": "verbose gpgsign",
        "tag": "sort gpgsign",
        "gc": "auto autodetach pruneexpire",
        "index": "version threads",
        "feature": "manyfiles experimental",
        "lfs": "repositoryformatversion access",
        "color": "ui branch diff status",
    }.items()
    for name in names.split()
)


def runs_nothing(config: str) -> bool:
    """Whether no setting in it can name a program."""
    section = ""
    for raw in config.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        header = _SECTION.match(line)
        if header is not None:
            section, line = header[1].lower(), line[header.end() :].strip()
        if line and not _is_harmless(section, line):
            return False
    return True


def _is_harmless(section: str, line: str) -> bool:
    setting = _SETTING.fullmatch(line)
    if setting is None:
        return False
    name, value = f"{section}.{setting[1].lower()}", (setting[2] or "").strip()
    if name == "core.fsmonitor":
        return setting[2] is not None and value.lower() in _FALSE
    return name in _HARMLESS and "::" not in value
