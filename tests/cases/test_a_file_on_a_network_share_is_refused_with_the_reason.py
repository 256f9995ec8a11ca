"""B69: SQLite's write-ahead log over NFS or SMB locked up, or damaged the file without notice.

Sources: https://github.com/David-Crty/databasement/issues/344, https://github.com/can1357/oh-my-pi/issues/9082

The share is one by the system's list of mounts, which is all that tells the two apart.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from counterfoil import AsyncCounterfoil, Counterfoil, effect
from counterfoil.cli.main import cli
from counterfoil.drivers import filesystems
from counterfoil.errors import NetworkFilesystem

KINDS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs", "fuse.vmhgfs-fuse", "ceph")
VERBS = ("db status", "db upgrade", "ops list", "ops show x", "find x", "explain x", "receipts show x", "review list")
Share = Callable[[str], Path]


@effect("cases.on-a-share", key="{request_id}")
def act(call: Any) -> str:
    return "done"


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Share:
    """Mount a file system of some kind, as far as the system's list goes, and return its folder."""

    def mount(kind: str) -> Path:
        folder, mounts = tmp_path / "share", tmp_path / "mounts"
        folder.mkdir(exist_ok=True)
        mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/export {folder} {kind} rw 0 0\n", "utf-8")
        monkeypatch.setattr(filesystems, "MOUNTS", mounts)
        return folder

    return mount


def command(*words: str, exit_code: int) -> str:
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == exit_code, (told.output, told.exception)
    return told.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opened", [Counterfoil.open, AsyncCounterfoil.open])
def test_start_is_refused_before_a_file_is_made(share: Share, opened: Any, kind: str) -> None:
    folder = share(kind)
    with pytest.raises(NetworkFilesystem, match=rf"network file system \({kind}\).*Use PostgreSQL"):
        opened(f"sqlite:///{folder}/agent.db")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("way", ["link to the folder", "link to the file", "relative"])
def test_no_way_around_leads_to_it(share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    folder = share("nfs4")
    (tmp_path / "folder").symlink_to(folder)
    (tmp_path / "file.db").symlink_to(folder / "agent.db")
    monkeypatch.chdir(folder)
    urls = {"link to the folder": f"{tmp_path}/folder/agent.db", "link to the file": f"{tmp_path}/file.db"}
    with pytest.raises(NetworkFilesystem):
        Counterfoil.open(f"sqlite:///{urls.get(way, 'agent.db')}")
    assert list(folder.iterdir()) == []


def test_a_share_that_is_mounted_by_walking_into_it_is_seen(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = share("autofs")
    walked = filesystems.os.path.realpath  # type: ignore[attr-defined]

    def walk(path: Any) -> str:
        share("nfs4")
        return str(walked(path))

    monkeypatch.setattr(filesystems.os.path, "realpath", walk)  # type: ignore[attr-defined]
    with pytest.raises(NetworkFilesystem, match="nfs4"):
        Counterfoil.open(f"sqlite:///{folder}/agent.db")


@pytest.mark.parametrize("verb", VERBS)
def test_commands_say_the_same_and_leave_the_file_alone(share: Share, verb: str) -> None:
    folder = share("ext4")
    Counterfoil.open(f"sqlite:///{folder}/agent.db").close()
    before = (folder / "agent.db").read_bytes()
    share("cifs")
    url = f"sqlite:///{folder}/agent.db"
    told = json.loads(command(*verb.split(), "--url", url, "--json", exit_code=2))["error"]
    assert told["code"] == "network-filesystem"
    assert "Use PostgreSQL" in told["message"]
    assert [path.name for path in folder.iterdir()] == ["agent.db"]
    assert (folder / "agent.db").read_bytes() == before


def test_who_accepts_the_risk_may_use_it_and_look_at_it(share: Share) -> None:
    url = f"sqlite:///{share('nfs4')}/agent.db"
    with Counterfoil.open(url, network_filesystem=True) as cf:
        assert cf.perform(act, tenant="t", request_id="r").value == "done"

    async def again() -> bool:
        other = AsyncCounterfoil.open(url, network_filesystem=True)
        try:
            return (await other.perform(act, tenant="t", request_id="r")).already_happened
        finally:
            await other.close()

    assert asyncio.run(again())
    accepted = ("--url", url, "--json", "--network-filesystem")
    assert json.loads(command("receipts", "show", "r", *accepted, exit_code=0))["value"] == "done"
    file = json.loads(command("db", "status", *accepted, exit_code=0))["file"]
    assert (file["file_system"], file["network_file_system"]) == ("nfs4", True)
