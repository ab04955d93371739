//! Erlang's `phash2` of a binary.

/// The partition that Rheo gives a key.
pub(super) fn phash2(key: &str, modulus: u32) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9_u32, 0x9e37_79b9_u32, 0x08d1_2e65_u32);
    let bytes = key.as_bytes();
    if bytes.is_empty() {
        return c % modulus;
    }
    let at = |bytes: &[u8], i: usize, shift: u32| u32::from(*bytes.get(i).unwrap_or(&0)) << shift;
    let four = |bytes: &[u8], i: usize| {
        at(bytes, i, 0).wrapping_add(at(bytes, i + 1, 8)).wrapping_add(at(bytes, i + 2, 16)).wrapping_add(at(
            bytes,
            i + 3,
            24,
        ))
    };
    let mut rest = bytes;
    while rest.len() >= 12 {
        a = a.wrapping_add(four(rest, 0));
        b = b.wrapping_add(four(rest, 4));
        c = c.wrapping_add(four(rest, 8));
        mix(&mut a, &mut b, &mut c);
        rest = &rest[12..];
    }
    c = c.wrapping_add(u32::try_from(bytes.len()).unwrap());
    a = a.wrapping_add(four(rest, 0));
    b = b.wrapping_add(four(rest, 4));
    c = c.wrapping_add(at(rest, 8, 8)).wrapping_add(at(rest, 9, 16)).wrapping_add(at(rest, 10, 24));
    mix(&mut a, &mut b, &mut c);
    c % modulus
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    fn step(x: &mut u32, y: u32, z: u32, shifted: u32) {
        *x = x.wrapping_sub(y).wrapping_sub(z) ^ shifted;
    }
    step(a, *b, *c, *c >> 13);
    step(b, *c, *a, *a << 8);
    step(c, *a, *b, *b >> 13);
    step(a, *b, *c, *c >> 12);
    step(b, *c, *a, *a << 16);
    step(c, *a, *b, *b >> 5);
    step(a, *b, *c, *c >> 3);
    step(b, *c, *a, *a << 10);
    step(c, *a, *b, *b >> 15);
}
