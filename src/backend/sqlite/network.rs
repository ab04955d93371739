//! Network file systems: SQLite's locks and shared memory do not reach across machines there.

use std::path::Path;

/// Says so in the log where the file lies on one.
pub(super) fn warn(path: &Path) {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    // Where there is no such list (not Linux), nothing is known and nothing said.
    let (Some(directory), Ok(mounts)) = (directory, std::fs::read_to_string("/proc/self/mounts")) else {
        return;
    };
    if let Some(kind) = file_system(&mounts, &directory)
        && is_network(kind)
    {
        tracing::warn!(
            file = %path.display(),
            file_system = kind,
            "the database is on a network file system, where it can be damaged as soon as two machines open it"
        );
    }
}

/// The kind of file system that holds `path`, by the list of mounts.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(at), Some(kind)) = (fields.nth(1), fields.next()) else { continue };
        // Spaces are written in octal.
        let at = at.replace("\\040", " ");
        // A later mount on the same place hides the earlier one.
        if path.starts_with(&at) && best.is_none_or(|(length, _)| at.len() >= length) {
            best = Some((at.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

fn is_network(kind: &str) -> bool {
    const KINDS: [&str; 10] =
        ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs"];
    KINDS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
overlay / overlay rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sda1 /home/local ext4 rw 0 0
//pc/share /mnt/my\\040share cifs rw 0 0
";

    #[test]
    fn the_longest_mount_counts() {
        for (path, kind, network) in [
            ("/var/lib", "overlay", false),
            ("/home/ann", "nfs4", true),
            ("/home/local/data", "ext4", false),
            ("/homework", "overlay", false),
            ("/mnt/my share/data", "cifs", true),
        ] {
            let found = file_system(MOUNTS, Path::new(path)).unwrap();
            assert_eq!((found, is_network(found)), (kind, network), "{path}");
        }
    }
}
