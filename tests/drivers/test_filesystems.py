"""A database file on a network file system is refused by the type of its mount."""

from pathlib import Path

import pytest

from counterfoil.drivers.filesystems import NETWORK_TYPES, filesystem_type, refuse_network
from counterfoil.errors import NetworkFilesystem

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /srv tmpfs rw 0 0
server:/export /srv/share nfs4 rw,vers=4.2 0 0
//server/x /srv/with\\040space cifs rw 0 0
/dev/sdb1 /srv/share/local xfs rw 0 0
server:/old /srv/hidden nfs rw 0 0
/dev/sdc1 /srv/hidden ext4 rw 0 0
user@host: /srv/ssh fuse.sshfs rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mounts"
    file.write_text(MOUNTS, "utf-8")
    return file


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/agent.db", "ext4"),
        ("/srv/agent.db", "tmpfs"),
        ("/srv/share/agent.db", "nfs4"),
        ("/srv/share", "nfs4"),
        ("/srv/shared/agent.db", "tmpfs"),
        ("/srv/share/local/agent.db", "xfs"),
        ("/srv/with space/agent.db", "cifs"),
        ("/srv/hidden/agent.db", "ext4"),
        ("/srv/ssh/agent.db", "fuse.sshfs"),
    ],
)
def test_the_longest_and_latest_mount_counts(mounts: Path, path: str, kind: str) -> None:
    assert filesystem_type(Path(path), mounts) == kind


def test_a_link_counts_as_where_it_leads(mounts: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/srv/share")
    assert filesystem_type(tmp_path / "link" / "agent.db", mounts) == "nfs4"


def test_a_network_file_system_is_refused_with_what_to_do(mounts: Path) -> None:
    with pytest.raises(NetworkFilesystem, match=r"network file system \(nfs4\).*network_filesystem=True"):
        refuse_network(Path("/srv/share/agent.db"), mounts)


def test_a_local_one_passes_and_so_does_a_system_that_does_not_tell(mounts: Path) -> None:
    refuse_network(Path("/srv/agent.db"), mounts)
    refuse_network(Path("/srv/share/agent.db"), Path("/nowhere/mounts"))
    assert filesystem_type(Path("/srv/share/agent.db"), Path("/nowhere/mounts")) is None


def test_common_network_file_systems_are_known() -> None:
    assert {"nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.sshfs", "9p"} <= NETWORK_TYPES
