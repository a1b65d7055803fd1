"""Programs that run what lies in the workspace, and git settings that make git run anything. Pure.

A table and one function over it. Most runners can reach any file from the one they begin with (a Makefile
runs scripts, a script imports modules), so that the whole tree counts, not only what they are told by name.

Known are those that only describe. Any other setting, and any line that is not as plain as git writes it
itself, may name a program: there are too many that do, and new ones come with every version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.agents.policy.shell import SHELLS, WRAPPERS, ShellCall
from holdfast.agents.policy.shell_lines import Word


@dataclass(frozen=True, slots=True)
class Runner:
    """`own` are the files, as globs, that it looks for by itself. With the subcommands of `fetches` it also
    runs what it gets from elsewhere (`*`: always). `inline` are the options behind which code stands,
    `operand` says that without one it runs what is written to it. Where there are subcommands in `only`, no
    other one runs anything."""

    own: tuple[str, ...] = ()
    fetches: frozenset[str] = frozenset()
    inline: frozenset[str] = frozenset()
    operand: bool = False
    only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reads:
    """What one program would read in order to run it.

    `program` is its own file, where it is started by path. `words` may be files; `only_scripts` leaves out
    those that do not look like scripts. `own` is looked for in its folders and in those that `words` name.
    `tree` stands for every file of the workspace, `git` for the settings and hooks of the repository. `doubt`
    says what cannot be told.
    """

    program: str = ""
    words: tuple[str, ...] = ()
    only_scripts: bool = False
    own: tuple[str, ...] = ()
    tree: bool = False
    git: bool = False
    doubt: str = ""


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


def _runner(own: str = "", fetches: str = "") -> Runner:
    return Runner(tuple(own.split()), frozenset(fetches.split()))


def _interpreter(inline: str = "", own: str = "") -> Runner:
    return Runner(tuple(own.split()), inline=frozenset(inline.split()), operand=True)


_PYTHON_OWN: Final = (
    "pyproject.toml setup.py setup.cfg tox.ini pytest.ini .pytest.ini conftest.py noxfile.py tasks.py "
    "fabfile.py requirements*.txt constraints*.txt uv.toml uv.lock poetry.lock poetry.toml Pipfile "
    "Pipfile.lock hatch.toml pip.conf sitecustomize.py usercustomize.py .env"
)
_NODE_OWN: Final = (
    "package.json package-lock.json npm-shrinkwrap.json pnpm-lock.yaml pnpm-workspace.yaml yarn.lock "
    "bun.lock bun.lockb bunfig.toml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs lerna.json nx.json turbo.json "
    "deno.json .env"
)
_MAKE_OWN: Final = "GNUmakefile makefile Makefile *.mk"
_INSTALLS: Final = "install i add ci update upgrade up dlx exec x create init sync download wheel get"

_PYTHON: Final = _runner(_PYTHON_OWN)
_INSTALLER: Final = _runner(_PYTHON_OWN, _INSTALLS)
_NODE: Final = _runner(_NODE_OWN, _INSTALLS)
_FETCHED: Final = _runner("", "*")
_JAVA: Final = _runner(
    "build.gradle* settings.gradle* gradle.properties gradlew pom.xml mvnw .mvn/* build.xml"
)
_MAKE: Final = _runner(_MAKE_OWN)
_DOCKER: Final = replace(
    _runner("Dockerfile* Containerfile* .dockerignore compose*.y*ml docker-compose*.y*ml .env", "run pull"),
    only=_names("build builder buildx bake compose run exec create stack swarm pull load import plugin"),
)
_PLAYBOOK: Final = _runner("ansible.cfg *.yml *.yaml")

RUNNERS: Final[Mapping[str, Runner]] = {
    **dict.fromkeys(("make", "gmake", "bmake", "remake"), _MAKE),
    **dict.fromkeys(("pytest", "py.test", "tox", "nox", "hatch", "invoke", "inv", "fab"), _PYTHON),
    **dict.fromkeys(("mypy", "pylint", "flake8", "sphinx-build", "coverage", "alembic", "celery"), _PYTHON),
    **dict.fromkeys(("pip", "pip3", "uv", "poetry", "pdm", "pipenv", "rye", "conda", "mamba"), _INSTALLER),
    **dict.fromkeys(("npm", "pnpm", "yarn", "corepack", "lerna", "nx", "turbo"), _NODE),
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx", "pipx"), _FETCHED),
    **dict.fromkeys(("jest", "vitest", "mocha", "eslint", "prettier", "webpack", "vite", "rollup"), _NODE),
    **dict.fromkeys(("tsc", "ts-node", "tsx", "gulp", "grunt", "playwright", "cypress"), _NODE),
    **dict.fromkeys(("gradle", "gradlew", "mvn", "mvnw", "ant", "sbt", "lein"), _JAVA),
    **dict.fromkeys(("ansible", "ansible-playbook"), _PLAYBOOK),
    "bazel": _runner("WORKSPACE* MODULE.bazel BUILD* .bazelrc"),
    "bundle": _runner("Gemfile Gemfile.lock .bundle/config", _INSTALLS),
    "cargo": _runner("Cargo.toml Cargo.lock build.rs rust-toolchain* .cargo/config*", "install add update"),
    "cmake": _runner("CMakeLists.txt CMakePresets.json CMakeUserPresets.json CMakeCache.txt *.cmake"),
    "composer": _runner("composer.json composer.lock", _INSTALLS),
    "ctest": _runner("CTestTestfile.cmake"),
    "direnv": _runner(".envrc .env"),
    "docker": _DOCKER,
    "docker-compose": _runner("Dockerfile* compose*.y*ml docker-compose*.y*ml .env"),
    "dotnet": _runner("*.csproj *.sln *.fsproj Directory.Build.* global.json nuget.config"),
    "go": _runner("go.mod go.sum go.work *.go", "install get"),
    "hg": _runner(".hg/hgrc"),
    "husky": _runner(".husky/*"),
    "just": _runner("justfile Justfile .justfile *.just .env"),
    "lefthook": _runner("lefthook.yml .lefthook.yml"),
    "meson": _runner("meson.build meson_options.txt meson.options"),
    "mise": _runner("mise.toml .mise.toml .tool-versions"),
    "mix": _runner("mix.exs mix.lock"),
    "ninja": _runner("build.ninja *.ninja"),
    "nix": _runner("flake.nix flake.lock default.nix shell.nix"),
    "nix-shell": _runner("default.nix shell.nix"),
    "podman": _DOCKER,
    "pre-commit": _runner(".pre-commit-config.yaml", "*"),
    "rake": _runner("Rakefile rakefile Rakefile.rb *.rake"),
    "scons": _runner("SConstruct SConscript"),
    "svn": _runner(".svn/config"),
    "swift": _runner("Package.swift"),
    "task": _runner("Taskfile.y*ml"),
    "terraform": _runner("*.tf *.tfvars .terraformrc"),
    "tup": _runner("Tupfile Tuprules.tup"),
    "vagrant": _runner("Vagrantfile"),
    "zig": _runner("build.zig build.zig.zon"),
    **dict.fromkeys((".", "source"), _interpreter()),
    **dict.fromkeys(("node", "nodejs"), _interpreter("-e -p -pe --eval --print", "package.json")),
    "bun": replace(_NODE, inline=_names("-e --eval"), operand=True),
    "deno": replace(_NODE, inline=_names("eval"), operand=True),
    "ruby": _interpreter("-e"),
    "perl": _interpreter("-e -E -ne -pe -i"),
    "php": _interpreter("-r"),
    "Rscript": _interpreter("-e", ".Rprofile"),
    "julia": _interpreter("-e -E", "Project.toml"),
    "java": _interpreter("-version --version"),
    "pwsh": _interpreter("-c -Command"),
    "tclsh": _interpreter(),
    "osascript": _interpreter("-e"),
}
_PYTHONS: Final = re.compile(r"(python|pypy)[0-9.]*")
_LUAS: Final = re.compile(r"lua(jit)?[0-9.]*")
_PYTHON_ITSELF: Final = _interpreter("-c -V --version", "sitecustomize.py usercustomize.py pyproject.toml")

PLAIN: Final = _names(
    "cat cut grep egrep fgrep head jq ls pwd sort tail tr uniq wc echo printf cp mv rm mkdir rmdir touch ln",
    "test [ [[ true false : date sleep basename dirname realpath readlink stat chmod chown diff cmp tee du",
    "df which type whoami id uname hostname ps kill tar gzip gunzip zcat zip unzip xz bzip2 curl wget",
    "export set unset read return exit shift local declare break continue let wait jobs umask eval trap",
    "find rg fd file tree md5sum sha1sum sha256sum base64 xxd od hexdump nl rev seq yes column paste scp",
    "rsync ruff black isort gofmt shellcheck free uptime printenv history alias popd dirs awk gawk mawk",
    "nawk sed",
    *WRAPPERS,
)
PLAIN_WITHOUT: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "sed"), _names("-f --file --exec")),
    "fd": _names("-x -X --exec --exec-batch"),
    "rg": _names("--pre --hostname-bin"),
    "rsync": _names("-e --rsh --rsync-path"),
    "scp": _names("-S -o -D"),
    "sort": _names("--compress-program"),
    "tar": _names(
        "-I -F --use-compress-program --checkpoint-action --to-command --info-script --rsh-command"
    ),
    "zip": _names("-T --unzip-command"),
}

_GIT: Final = _names("git gh glab hub tig git-lfs")
_GIT_PLAIN_OPTIONS: Final = _names(
    "-p -P --paginate --no-pager --no-replace-objects --literal-pathspecs --no-optional-locks",
    "--version --help",
)
_GIT_RUNS: Final = _names(
    "bisect daemon difftool filter-branch hook instaweb mergetool send-email shell submodule upload-pack"
)
_GIT_RUNS_OPTION: Final = re.compile(
    r"--(exec|extcmd|upload-pack|receive-pack|open-files-in-pager|template|config)(=.*)?|-[xO].*"
)


def would_read(call: ShellCall) -> Reads:
    """What this program reads in order to run it; nothing for one that only does what its words say."""
    if not call.words:
        return Reads()
    found = _by_name(call)
    inputs = tuple(word.text for word in call.inputs if word.fixed)
    if "/" in call.words[0].text:
        found = replace(found, program=call.words[0].text)
    elif call.program in PLAIN and not found.doubt:
        return found
    if not found.doubt and not all(word.fixed for word in (*call.words[1:], *call.inputs)):
        found = replace(found, doubt=f"{call.program[:40]} is given something that the shell puts in")
    return replace(found, words=(*found.words, *inputs))


def _by_name(call: ShellCall) -> Reads:
    name, words = call.program, tuple(_spelled(call.words[1:]))
    if name in _GIT:
        return Reads(words=words, only_scripts=True, git=True, doubt=_git_doubt(call.words[1:]))
    if name in SHELLS:
        return _shell(call, words)
    given = [word.text for word in call.words[1:]]
    if name == "tar" and given:
        given[0] = f"-{given[0].lstrip('-')}" if not given[0].startswith("--") else given[0]
    told = next((word for word in given if _lets_run(name, word)), None)
    if told is not None:
        return Reads(words=words, doubt=f"{told[:40]} lets {name} run other programs")
    runner = _runner_of(name)
    if runner is not None and runner.only and not runner.only & set(given):
        return Reads(words=words, only_scripts=True)
    if runner is None:
        return Reads() if name in PLAIN else Reads(words=words, only_scripts=True)
    module = tuple(_modules(call.words)) if runner is _PYTHON_ITSELF else ()
    doubt = _doubt(call, runner) if not module else ""
    return Reads(words=(*words, *module), own=runner.own, tree=True, git=True, doubt=doubt)


def _lets_run(name: str, word: str) -> bool:
    """Whether an option, abbreviated or in a cluster, makes a plain program run others."""
    given = word.partition("=")[0]
    for option in PLAIN_WITHOUT.get(name, ()):
        if option.startswith("--"):
            if len(given) > 3 and (option.startswith(given) or given.startswith(option)):
                return True
        elif re.fullmatch(rf"-\w*{option[1]}.*", word):
            return True
    return False


def _runner_of(name: str) -> Runner | None:
    if _PYTHONS.fullmatch(name):
        return _PYTHON_ITSELF
    return _interpreter("-e -v") if _LUAS.fullmatch(name) else RUNNERS.get(name)


def _shell(call: ShellCall, words: tuple[str, ...]) -> Reads:
    """A shell with `-c` runs what its text starts, which is followed by itself."""
    if any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text) for word in call.words[1:]):
        return Reads(words=words, only_scripts=True)
    return Reads(words=words, tree=True, git=True, doubt=_doubt(call, _interpreter()))


def _doubt(call: ShellCall, runner: Runner) -> str:
    rest = [word.text for word in call.words[1:]]
    if "*" in runner.fetches or runner.fetches & set(rest):
        return f"{call.program} also runs what it gets from elsewhere"
    if not runner.operand or runner.inline & set(rest):
        return ""
    operands = [word for word in rest if not word.startswith("-") or word == "-"]
    from_input = (not operands or operands[0] == "-") and (call.fed or not call.inputs)
    return f"what {call.program} runs is written to it by something else" if from_input else ""


def _modules(words: tuple[Word, ...]) -> Iterator[str]:
    """Where `python -m` finds a module of the workspace."""
    for at, word in enumerate(words[:-1]):
        name = words[at + 1].text if word.text == "-m" else ""
        if name and re.fullmatch(r"[\w.]+", name):
            path = name.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py")
            return


def _git_doubt(words: tuple[Word, ...]) -> str:
    rest = [word.text for word in words]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-C" and rest:
            rest.pop(0)
        elif option not in _GIT_PLAIN_OPTIONS:
            return f"{option[:40]} gives git settings of its own"
    if rest and rest[0] in _GIT_RUNS:
        return f"git {rest[0]} runs other programs"
    told = next((word for word in rest[1:] if _GIT_RUNS_OPTION.fullmatch(word)), None)
    return "" if told is None else f"{told[:40]} lets git run other programs"


def _spelled(words: tuple[Word, ...]) -> Iterator[str]:
    """Every way in which a word may name a file: whole, as the value of an option, or attached to it."""
    for word in words:
        if not word.text:
            continue
        if not word.text.startswith("-"):
            yield word.text
        yield from (part for part in (word.text.partition("=")[2], word.text.rpartition("=")[2]) if part)
        if re.match(r"-[A-Za-z].", word.text):
            yield word.text[2:]


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
