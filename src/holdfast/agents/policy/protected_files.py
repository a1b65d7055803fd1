"""Files that tell programs what to run: an agent writes them only once a person let it; pure.

Whoever may change one of these may have commands run by programs that look harmless, when nobody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.agents.policy.exec_policy import Ask, Security, Verdict

FOLDERS: Final = {
    ".git": "it is git's own",
    ".hg": "it is Mercurial's own",
    ".svn": "it is Subversion's own",
    ".husky": "git runs what lies there",
    ".githooks": "git runs what lies there",
    ".git-hooks": "git runs what lies there",
    ".direnv": "direnv runs what lies there",
    ".mvn": "Maven takes its settings there",
    ".bundle": "Bundler takes its settings there",
    ".yarn": "Yarn runs what lies there",
}
FILES: Final = {
    ".gitattributes": "it says which programs git runs on files",
    ".gitmodules": "it says where git gets other repositories",
    ".gitconfig": "it says which programs git runs",
    ".config/git/*": "it says which programs git runs",
    ".lfsconfig": "it says where git gets files",
    ".envrc": "direnv runs it",
    ".npmrc": "npm takes its settings there",
    ".yarnrc": "Yarn takes its settings there",
    ".yarnrc.yml": "Yarn takes its settings there",
    ".pnpmfile.cjs": "pnpm runs it",
    ".pre-commit-config.yaml": "pre-commit runs what it says",
    ".pre-commit-hooks.yaml": "pre-commit runs what it says",
    "lefthook.yml": "git runs what it says",
    ".lefthook.yml": "git runs what it says",
    ".vscode/tasks.json": "an editor runs what it says",
    ".vscode/settings.json": "an editor takes its settings there",
    ".vscode/launch.json": "an editor runs what it says",
    ".idea/*": "an editor takes its settings there",
    ".devcontainer/*": "an editor runs what it says",
    ".devcontainer.json": "an editor runs what it says",
    "pip.conf": "pip takes its settings there",
    "pip.ini": "pip takes its settings there",
    ".pypirc": "it says where packages go",
    ".cargo/config": "cargo takes its settings there",
    ".cargo/config.toml": "cargo takes its settings there",
    ".bazelrc": "Bazel takes its settings there",
    ".mise.toml": "mise runs what it says",
    "mise.toml": "mise runs what it says",
    ".bashrc": "shells run it",
    ".bash_profile": "shells run it",
    ".bash_login": "shells run it",
    ".profile": "shells run it",
    ".zshrc": "shells run it",
    ".zshenv": "shells run it",
    ".zprofile": "shells run it",
    "sitecustomize.py": "every Python runs it",
    "usercustomize.py": "every Python runs it",
    "*.pth": "every Python may run it",
}


@dataclass(frozen=True, slots=True)
class WriteDecision:
    verdict: Verdict
    reason: str = ""
    protected: bool = True


def protected(steps: Sequence[str]) -> str | None:
    """Why a path may not be written unasked; None where it may. Case does not count, as on some disks."""
    parts = [step.casefold() for step in steps]
    for part in parts:
        if part in FOLDERS:
            return FOLDERS[part]
    for name, why in FILES.items():
        wanted = name.split("/")
        if len(parts) >= len(wanted) and all(map(fnmatchcase, parts[-len(wanted) :], wanted)):
            return why
    return None


def judge_write(steps: Sequence[str], security: Security, ask: Ask) -> WriteDecision:
    """As for a command that is on no list: who may run anything may write anything."""
    why = protected(steps)
    if why is None:
        return WriteDecision("run", protected=False)
    reason = f"{'/'.join(steps)[:200]} is protected: {why}"
    if security == "full" and ask != "always":
        return WriteDecision("run", reason)
    return WriteDecision("block" if security == "deny" or ask == "off" else "ask", reason)
