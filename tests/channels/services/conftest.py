"""The services that run here, each with a gateway that serves all of the contract's tests."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from service_stage import ALL, ServiceOnTrial, Stage, kind_of, opened, stage


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*abilities): only for services that have them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of the contract for the services that can do what it is about."""
    if "service" in metafunc.fixturenames:
        marked = metafunc.definition.iter_markers("needs")
        wanted = {ability for mark in marked for ability in mark.args}
        able = [name for name in ALL if all(getattr(kind_of(name), one) for one in wanted)]
        metafunc.parametrize("service", able, indirect=True, scope="module")


@pytest.fixture(scope="module")
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceOnTrial]:
    with opened(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.fixture(scope="module")
def there(
    service: ServiceOnTrial, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(sqlite_template, home / "holdfast.db")
    with stage(home, service) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    shutil.copy(sqlite_template, made / "holdfast.db")
    return made
