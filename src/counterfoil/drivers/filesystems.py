"""Tell whether a file lies on a network file system, where SQLite's WAL locks up or damages the file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from counterfoil.errors import NetworkFilesystem

# WAL needs memory shared by all who have the file open, which no network file system offers (sqlite.org/wal.html).
NETWORK_TYPES = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "ocfs2", "gfs2", "ncpfs",
     "beegfs", "9p", "davfs", "gpfs", "vboxsf", "virtiofs", "vmhgfs", "prl_fs", "fakeowner", "grpcfuse", "osxfs",
     "coda", "orangefs", "pvfs2", "panfs", "wekafs", "afpfs", "webdav",
     "fuse.smbnetfs", "fuse.blobfuse", "fuse.blobfuse2", "fuse.mount-s3", "fuse.seaweedfs", "fuse.sshfs",
     "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.ceph", "fuse.ceph-fuse", "fuse.davfs2",
     "fuse.goofys", "fuse.juicefs", "fuse.vmhgfs-fuse", "fuse.prl_fsd", "fuse.grpcfuse", "fuse.osxfs",
     "fuse.curlftpfs", "fuse.gvfsd-fuse", "fuse.mfs", "fuse.lizardfs", "fuse.objectivefs", "fuse.quobyte"}
)  # fmt: skip
MOUNTS = Path("/proc/self/mounts")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def filesystem_type(path: Path, mounts: Path | None = None) -> str | None:
    """Return the type of the file system that `path` lies on, or None where the system does not tell."""
    real = os.path.realpath(path)  # first: walking there is what mounts an automatic mount
    try:
        lines = (mounts or MOUNTS).read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    best, found = -1, None
    for line in lines:
        _device, point, kind, *_rest = [_ESCAPE.sub(lambda m: chr(int(m[1], 8)), part) for part in line.split()]
        if _contains(point, real) and len(point) >= best:  # a later mount on the same point hides the earlier
            best, found = len(point), kind
    return found


def _contains(point: str, real: str) -> bool:
    return real == point or real.startswith(point.rstrip("/") + "/")


def refuse_network(path: Path, mounts: Path | None = None) -> None:
    """Refuse a database file on a network file system.

    Raises:
        NetworkFilesystem: the file lies on one.
    """
    kind = filesystem_type(path, mounts)
    if kind in NETWORK_TYPES:
        raise NetworkFilesystem(
            f"The database {path} lies on a network file system ({kind}). SQLite's WAL needs memory shared by all its"
            " users on one host: over the network it locks up or damages the file without notice. Use PostgreSQL for"
            " more than one host, put the file on a local disk, or pass network_filesystem=True to"
            " Counterfoil.open, and --network-filesystem to commands, if exactly one host uses it and you accept the"
            " risk."
        )
