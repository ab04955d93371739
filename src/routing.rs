//! Which partition an event goes to: the same one that Rheo chooses.

/// The partition, below `partitions`, of an event with this key; 0 without a key.
///
/// # Panics
/// Never; a stream without partitions counts as one.
#[must_use]
pub fn partition_for_key(key: Option<&str>, partitions: u32) -> u32 {
    match key {
        Some(key) if partitions > 1 => phash2(key.as_bytes()) % partitions,
        _ => 0,
    }
}

/// The hash behind Erlang's `phash2(Binary, N)`: Bob Jenkins' lookup2 over the bytes with Erlang's
/// initial value for binaries.
fn phash2(bytes: &[u8]) -> u32 {
    const GOLDEN: u32 = 0x9e37_79b9;
    const BINARY: u32 = 0x08d1_2e65;
    if bytes.is_empty() {
        return BINARY;
    }
    let (mut a, mut b, mut c) = (GOLDEN, GOLDEN, BINARY);
    let mut chunks = bytes.chunks_exact(12);
    for chunk in &mut chunks {
        a = a.wrapping_add(word(&chunk[0..4]));
        b = b.wrapping_add(word(&chunk[4..8]));
        c = c.wrapping_add(word(&chunk[8..12]));
        (a, b, c) = mix(a, b, c);
    }
    let tail = chunks.remainder();
    // The lowest byte of c is reserved for the length, which enters as 32 bits.
    c = c.wrapping_add(u32::try_from(bytes.len() & 0xffff_ffff).unwrap_or(u32::MAX));
    a = a.wrapping_add(word(&tail[..tail.len().min(4)]));
    b = b.wrapping_add(word(tail.get(4..tail.len().min(8)).unwrap_or_default()));
    c = c.wrapping_add(word(tail.get(8..).unwrap_or_default()) << 8);
    mix(a, b, c).2
}

/// Up to four bytes, little endian.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_recorded_vectors() {
        let vectors: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("../tests/fixtures/rheo/phash2_vectors.json")).unwrap();
        assert!(vectors.len() >= 80);
        for vector in &vectors {
            let hex = vector["key_hex"].as_str().unwrap();
            let bytes: Vec<u8> =
                (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
            let moduli = vector["mod"].as_object().unwrap();
            assert!(!moduli.is_empty());
            for (n, expected) in moduli {
                let n: u32 = n.parse().unwrap();
                assert_eq!(u64::from(phash2(&bytes) % n), expected.as_u64().unwrap(), "{hex} mod {n}");
            }
        }
    }

    #[test]
    fn no_key_goes_to_the_first_partition() {
        assert_eq!(partition_for_key(None, 8), 0);
        assert_eq!(partition_for_key(Some("a"), 1), 0);
    }
}
